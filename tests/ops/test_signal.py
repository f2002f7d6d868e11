"""Signals against SciPy and torch, the laws they obey, their gradients and their traces."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
import scipy.signal
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ember_ml as em
from ember_ml import ops
from ember_ml.nn import tensor

RNG = np.random.default_rng(3)
X = RNG.standard_normal((2, 700))
NAMES = ("hann", "hamming", "blackman", "bartlett", "boxcar", ("kaiser", 8.0))


def close(got: Any, wanted: Any, atol: float = 1e-12) -> None:
    values = got.numpy() if isinstance(got, em.Tensor) else np.asarray(got)
    np.testing.assert_allclose(values, wanted, rtol=1e-10, atol=atol)


@pytest.fixture(params=("numpy", "torch", "jax"))
def wide(request: pytest.FixtureRequest) -> Any:
    """The backends that have complex128."""
    with em.use_backend(request.param):
        yield request.param


# --- As the seeds write it ------------------------------------------------------------------------


def test_programs_of_waves(backend: str) -> None:
    x = tensor.convert_to_tensor(RNG.standard_normal(4096).astype("float32"))
    window = ops.hann_window(1024)
    frames = ops.frame(x, frame_length=1024, hop_length=512)
    spectra = ops.stft(ops.multiply(frames, window))
    assert spectra.shape == (frames.shape[0], 5, 513)
    assert spectra.dtype is em.complex64
    one = ops.stft(ops.multiply(x[:1024], window))
    np.testing.assert_allclose(one.numpy(), spectra[0].numpy(), atol=1e-4)
    back = ops.istft(one, frame_length=1024, hop_length=None, length=None)
    np.testing.assert_allclose(back.numpy(), (x[:1024] * window).numpy(), atol=1e-6)


# --- SciPy and torch ------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 7, 16])
@pytest.mark.parametrize("name", NAMES)
def test_windows_are_scipy_s(backend: str, name: Any, length: int) -> None:
    for periodic in (True, False):
        wanted = scipy.signal.get_window(name, length, fftbins=periodic)
        close(ops.get_window(name, length, periodic, dtype="float64"), wanted, 1e-15)


@pytest.mark.parametrize("name", NAMES)
def test_stft_is_scipy_s(wide: str, name: Any) -> None:
    window = scipy.signal.get_window(name, 64)
    got = ops.stft(ops.asarray(X), 64, 24, name, center=False, fft_length=80)
    _, _, wanted = scipy.signal.stft(
        X, window=window, nperseg=64, noverlap=40, nfft=80, boundary=None, padded=False
    )
    close(got, wanted.swapaxes(-1, -2) * window.sum())
    # The newer class centres its slices on zeros beyond the ends.
    centred = ops.stft(ops.asarray(X), 64, 24, name, pad_mode="constant", fft_length=80)
    slices = scipy.signal.ShortTimeFFT(window, 24, 1.0, mfft=80, phase_shift=None)
    close(centred, slices.stft(X, p0=0, p1=centred.shape[-2]).swapaxes(-1, -2))


@pytest.mark.parametrize("length", [64, 63])
@pytest.mark.parametrize("mode", ["reflect", "constant"])
def test_stft_is_torch_s(wide: str, length: int, mode: str) -> None:
    x = torch.from_numpy(X)
    window = torch.hann_window(length, dtype=torch.float64)
    wanted = torch.stft(x, length, 20, window=window, pad_mode=mode, return_complex=True)
    got = ops.stft(ops.asarray(X), length, 20, pad_mode=mode)
    close(got, wanted.numpy().swapaxes(-1, -2))
    back = torch.istft(wanted, length, 20, window=window, length=700)
    close(ops.istft(got, length, 20, length=700), back.numpy())
    given = ops.stft(ops.asarray(X), length, 20, ops.asarray(window.numpy()), pad_mode=mode)
    close(given, got.numpy())


def test_complex_signals(wide: str) -> None:
    x = X + 1j * X[::-1]
    window = torch.hann_window(64, dtype=torch.float64)
    wanted = torch.stft(
        torch.from_numpy(x), 64, 16, window=window, return_complex=True, onesided=False
    )
    got = ops.stft(ops.asarray(x), 64)
    close(got, wanted.numpy().swapaxes(-1, -2))
    close(ops.istft(got, onesided=False, length=700), x)


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["dct", "idct", "dst", "idst"])
def test_cosine_transforms_are_scipy_s(backend: str, name: str, kind: int, norm: Any) -> None:
    for size in (2, 5, 300):
        x = X[:, :size]
        wanted = getattr(scipy.fft, name)(x, kind, norm=norm)
        close(getattr(ops, name)(ops.asarray(x), kind, norm=norm), wanted, 1e-11)
    wanted = getattr(scipy.fft, name)(X, kind, norm=norm, axis=0)
    close(getattr(ops, name)(ops.asarray(X), kind, norm=norm, axis=0), wanted)


@pytest.mark.parametrize("sizes", [(7, 4), (4, 7), (7, 3), (3, 8), (5, 5), (200, 90), (90, 201)])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolutions_are_numpy_s(backend: str, sizes: tuple[int, int], mode: Any) -> None:
    a, b = X[0, : sizes[0]], X[1, : sizes[1]]
    close(ops.convolve(ops.asarray(a), ops.asarray(b), mode), np.convolve(a, b, mode))
    close(ops.correlate(ops.asarray(a), ops.asarray(b), mode), np.correlate(a, b, mode))
    close(ops.fftconvolve(ops.asarray(a), ops.asarray(b), mode), np.convolve(a, b, mode))


def test_complex_correlation_conjugates(wide: str) -> None:
    a, b = X[0, :9] + 1j * X[1, :9], X[0, 9:13] + 1j * X[1, 9:13]
    for method in ("direct", "fft"):
        got = ops.correlate(ops.asarray(a), ops.asarray(b), "full", method=method)
        close(got, np.correlate(a, b, "full"))


def test_long_integers_are_exact(backend: str) -> None:
    a, b = RNG.integers(-(10**6), 10**6, (2, 80))
    got = ops.convolve(ops.asarray(a), ops.asarray(b))
    assert got.dtype is em.int64
    np.testing.assert_array_equal(got.numpy(), np.convolve(a, b))


def test_hilbert_is_scipy_s(wide: str) -> None:
    for size in (8, 9):
        close(ops.hilbert(ops.asarray(X[:, :size])), scipy.signal.hilbert(X[:, :size]))


# --- The mel scale --------------------------------------------------------------------------------


def test_slaney_s_scale(backend: str) -> None:
    """15 mels at 1 kHz, 27 more at 6.4 times that: with 41 filters, corners are whole mels."""
    bank = ops.mel_filter_bank(
        41, 12800, 12800, 0.0, 6400.0, mel_scale="slaney", dtype="float64"
    ).numpy()
    for mel, hertz in ((15, 1000.0), (3, 200.0), (14, 14 * 200 / 3)):
        near = round(hertz)
        assert bank[near, mel - 1] == pytest.approx(1 - abs(near - hertz) / (200 / 3), abs=1e-9)
    assert bank.shape == (6401, 41)
    above = 1000 * 6.4 ** (1 / 27)  # the corner of mel 16
    inside = np.nonzero(bank[:, 14])[0]
    assert inside[0] == np.floor(14 * 200 / 3) + 1
    assert inside[-1] == np.ceil(above) - 1


def test_areas_of_slaney_s_norm(backend: str) -> None:
    plain = ops.mel_filter_bank(10, 512, dtype="float64").numpy()
    equal = ops.mel_filter_bank(10, 512, norm="slaney", dtype="float64").numpy()
    mels = np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 12)
    corners = 700 * (10 ** (mels / 2595) - 1)
    close(equal, plain * 2 / (corners[2:] - corners[:-2]))


def test_mfcc_is_the_sum_of_its_parts(backend: str) -> None:
    x = ops.asarray(X.astype("float32"))
    mels = ops.mel_spectrogram(x, 16000, 256, n_mels=30)
    loud = ops.power_to_db(mels, axis=(-2, -1))
    wanted = ops.dct(loud, 2, norm="ortho")[..., :12]
    got = ops.mfcc(x, 16000, 12, 256, n_mels=30)
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-3, atol=1e-3)
    alone = ops.mfcc(x[0] * 1e-3, 16000, 12, 256, n_mels=30)
    pair = ops.mfcc(ops.stack([x[0] * 1e-3, x[1] * 1e3]), 16000, 12, 256, n_mels=30)
    np.testing.assert_allclose(pair[0].numpy(), alone.numpy(), rtol=1e-3, atol=1e-3)


def test_decibels_and_back(backend: str) -> None:
    x = ops.asarray([0.5, 1.0, 20.0], dtype="float64")
    close(ops.db_to_power(ops.power_to_db(x, 3.0), 3.0), x.numpy())
    close(ops.db_to_amplitude(ops.amplitude_to_db(x)), x.numpy())


# --- Laws -----------------------------------------------------------------------------------------

SIGNALS = st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 90), st.integers(2, 24))


@settings(max_examples=60, deadline=None)
@given(SIGNALS, st.data())
def test_istft_inverts_stft(signal: tuple[int, int, int], data: st.DataObject) -> None:
    seed, size, length = signal
    hop = data.draw(st.integers(1, max(length // 2, 1)))
    name = data.draw(st.sampled_from(["hann", "hamming", None, ("kaiser", 4.0)]))
    extra = data.draw(st.integers(0, 5))
    x = np.random.default_rng(seed).standard_normal((2, size))
    mode = "reflect" if size > length // 2 and data.draw(st.booleans()) else "constant"
    options: dict[str, Any] = {"fft_length": length + extra}
    with em.use_backend("numpy"):
        spectrum = ops.stft(x, length, hop, name, pad_mode=mode, pad_end=True, **options)
        y = ops.istft(spectrum, length, hop, name, length=size, **options)
    np.testing.assert_allclose(y.numpy(), x, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(SIGNALS)
def test_parseval(signal: tuple[int, int, int]) -> None:
    seed, count, length = signal
    x = np.random.default_rng(seed).standard_normal(count * length)
    with em.use_backend("numpy"):
        power = ops.spectrogram(x, length, length, None, center=False, onesided=False)
    assert ops.sum(power).item() == pytest.approx(length * np.sum(x**2), rel=1e-10)


@settings(max_examples=60, deadline=None)
@given(SIGNALS, st.integers(1, 30))
def test_overlap_add_inverts_frame(signal: tuple[int, int, int], hop: int) -> None:
    seed, size, length = signal
    x = np.random.default_rng(seed).standard_normal(size)
    with em.use_backend("numpy"):
        frames = ops.frame(x, length, hop, pad_end=True)
        cover = ops.overlap_add(ops.ones_like(frames), hop).numpy()[:size]
        total = ops.overlap_add(frames, hop).numpy()[:size]
    np.testing.assert_allclose(total, cover * x[: len(cover)])  # a gap may follow the last frame
    assert ((cover > 0) == (np.arange(len(cover)) % hop < length)).all()


@settings(max_examples=40, deadline=None)
@given(SIGNALS, st.sampled_from([1, 2, 3, 4]), st.sampled_from([None, "ortho", "forward"]))
def test_cosine_transforms_invert(signal: tuple[int, int, int], kind: int, norm: Any) -> None:
    seed, size, _ = signal
    x = np.random.default_rng(seed).standard_normal((2, max(size, 2)))
    with em.use_backend("numpy"):
        close(ops.idct(ops.dct(x, kind, norm=norm), kind, norm=norm), x)
        close(ops.idst(ops.dst(x, kind, norm=norm), kind, norm=norm), x)


@settings(max_examples=40, deadline=None)
@given(SIGNALS)
def test_convolution_commutes(signal: tuple[int, int, int]) -> None:
    seed, size, taps = signal
    a, b = np.random.default_rng(seed).standard_normal((2, max(size, taps)))
    with em.use_backend("numpy"):
        one, two = ops.convolve(a[:size], b[:taps]), ops.convolve(b[:taps], a[:size])
        other = ops.convolve(a[:size], b[:taps], method="fft")
    close(one, two.numpy())
    close(one, other.numpy(), 1e-11)


def test_the_inverse_is_exact_on_every_backend(backend: str) -> None:
    x = X.astype("float32")
    for hop in (16, 32):
        back = ops.istft(ops.stft(x, 64, hop, pad_end=True), 64, hop, length=700)
        np.testing.assert_allclose(back.numpy(), x, atol=3e-6)
    # Without centred frames, the first sample meets a window of zero.
    back = ops.istft(ops.stft(x, 64, 16, center=False), 64, 16, center=False).numpy()
    assert (back[:, 0] == 0).all()
    np.testing.assert_allclose(back[:, 8:640], x[:, 8:640], atol=1e-4)


def test_frames_do_not_share_memory(backend: str) -> None:
    x = ops.asarray(np.arange(6.0))
    frames = ops.frame(x, 3, 3)
    frames[0, 0] = 9.0
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_float64_on_mlx() -> None:
    """MLX lacks complex128: spectra say so, and what is real in the end works."""
    with em.use_backend("mlx"):
        x = ops.asarray(X)
        with pytest.raises(em.errors.DTypeError, match="complex128"):
            ops.stft(x, 64)
        got = ops.mfcc(x, 16000, 5, 64, n_mels=8)
        power = ops.spectrogram(x, 64, fft_length=70)
    assert got.dtype is em.float64
    close(power, ops.spectrogram(X, 64, fft_length=70).numpy(), 1e-11)
    close(got, ops.mfcc(X, 16000, 5, 64, n_mels=8).numpy(), 1e-9)


# --- Gradients and traces -------------------------------------------------------------------------

SHORT = X[:, :40]
TAPS = X[0, :5]
PROGRAMS = {
    "stft": lambda x: ops.stft(x, 16, 5, fft_length=20),
    "istft": lambda x: ops.istft(ops.stft(x, 16, 5), 16, 5, length=40),
    "spectrogram": lambda x: ops.spectrogram(x, 16),
    "amplitude": lambda x: ops.spectrogram(x, 16, power=1.0),
    "mel_spectrogram": lambda x: ops.mel_spectrogram(x, 8000, 16, n_mels=4),
    "mfcc": lambda x: ops.mfcc(x, 8000, 3, 16, n_mels=4),
    "dct": lambda x: ops.dct(x, 2, norm="ortho"),
    "dct-long": lambda x: ops.dct(ops.concat([x] * 7, axis=-1), 4),
    "dst-long": lambda x: ops.dst(ops.concat([x] * 7, axis=-1), 1),
    "frame": lambda x: ops.frame(x, 7, 3, axis=1, pad_end=True),
    "overlap_add": lambda x: ops.overlap_add(x, 3),
    "convolve": lambda x: ops.convolve(x, TAPS, "same"),
    "correlate": lambda x: ops.correlate(x, x[:, :35], method="fft"),
    "preemphasis": lambda x: ops.preemphasis(x),
    "hilbert": lambda x: ops.hilbert(x),
    "decibels": lambda x: ops.amplitude_to_db(ops.abs(x), top_db=20.0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_flow_and_traces_hold(name: str) -> None:
    """torch, JAX under jit, and finite differences agree on the slope along a direction."""
    run = PROGRAMS[name]
    generator = np.random.default_rng(5)
    along = generator.standard_normal(SHORT.shape)
    plain = run(ops.asarray(SHORT)).numpy()
    weights = generator.standard_normal(plain.shape)

    def total(x: Any) -> Any:
        y = run(x)
        sizes = ops.real(y) + 2 * ops.imag(y) if y.dtype.is_complex else y
        return ops.sum(sizes * weights).native

    leaf = torch.from_numpy(SHORT).clone().requires_grad_()
    (slope,) = torch.autograd.grad(total(leaf), leaf)
    traced = jax.jit(jax.grad(total))(jnp.asarray(SHORT))
    np.testing.assert_allclose(traced, slope.numpy(), rtol=1e-7, atol=1e-7)
    step = 1e-6
    difference = (total(SHORT + step * along) - total(SHORT - step * along)) / (2 * step)
    assert np.sum(slope.numpy() * along) == pytest.approx(float(difference), rel=1e-5, abs=1e-5)
    close(jax.jit(lambda x: run(x).native)(jnp.asarray(SHORT)), plain, 1e-9)


def test_mlx_differentiates_and_compiles() -> None:
    import mlx.core as mx

    x = mx.array(SHORT.astype("float32"))
    for name in ("spectrogram", "mfcc", "istft", "overlap_add", "dct"):
        run = PROGRAMS[name]

        def total(x: Any, run: Any = run) -> Any:
            return ops.sum(run(x)).native

        leaf = torch.from_numpy(SHORT).clone().requires_grad_()
        (wanted,) = torch.autograd.grad(total(leaf), leaf)
        got = np.asarray(mx.grad(total)(x))
        np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-2, atol=1e-2)
        np.testing.assert_allclose(
            np.asarray(mx.compile(total)(x)), total(leaf).item(), rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_silence_has_a_gradient_of_zero(power: float) -> None:
    def total(x: Any) -> Any:
        return ops.sum(ops.spectrogram(x, 16, power=power)).native

    silence = torch.zeros(40, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(total(silence), silence)
    assert not slope.any()
    assert not jax.grad(total)(jnp.zeros(40)).any()


def test_a_window_can_be_learned() -> None:
    window = torch.hann_window(16, dtype=torch.float64).requires_grad_()
    out = ops.spectrogram(torch.from_numpy(SHORT), 16, window=window)
    assert out.requires_grad
    out.native.sum().backward()
    assert window.grad is not None
    assert bool((window.grad != 0).any())


def test_torch_records_spectra() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def program(x: torch.Tensor) -> torch.Tensor:
        return ops.istft(ops.stft(x, 16, 4), 16, 4, length=40).native

    x = torch.from_numpy(SHORT)
    graph = make_fx(program)(x)
    torch.testing.assert_close(graph(2 * x), 2 * x)


# --- What users write -----------------------------------------------------------------------------


def test_the_namespace() -> None:
    for name in ops.signal.__all__:
        assert getattr(ops, name) is getattr(ops.signal, name)


def test_lists_and_native_arrays(backend: str) -> None:
    assert ops.convolve([1, 2], [1.0, 1.0]).tolist() == [1.0, 3.0, 2.0]
    assert ops.stft([1, 2, 3, 4], 4).backend == backend
    native = ops.asarray([1.0, 2.0, 3.0]).native
    assert ops.frame(native, 2, 1).backend == backend


def test_two_backends() -> None:
    window = ops.ones(4).to_backend("torch")
    with pytest.raises(em.errors.BackendMismatchError, match=r"ops\.stft"):
        ops.stft(ops.ones(9), 4, window=window)
    with pytest.raises(em.errors.BackendMismatchError, match=r"ops\.convolve"):
        ops.convolve(ops.ones(9), window)
