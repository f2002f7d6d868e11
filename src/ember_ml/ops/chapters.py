"""Which chapter of `ops` has which names: those beyond the standard are loaded when first used.

All of them would double the cost of `import ember_ml`. A test compares the names with those that
the chapters list themselves.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

__all__ = ["CHAPTERS", "NAMESPACES", "find", "load_all", "require"]

# Modules that users reach as `ops.losses` and so on.
NAMESPACES: Final = ("losses", "random", "signal", "stats")
CHAPTERS: Final[dict[str, str]] = {
    "activations": (
        "celu elu geglu gelu get_activation glu hard_shrink hard_sigmoid hard_swish hard_tanh "
        "leaky_relu lecun_tanh log_sigmoid log_softmax mish prelu relu relu6 relu_squared selu "
        "sigmoid silu soft_shrink softmax softmin softplus softsign swiglu swish tanhshrink "
        "threshold"
    ),
    "affine": "linear",
    "arithmetic": (
        "absolute cbrt deg2rad degrees exp2 fmax fmin fmod heaviside lerp mod power rad2deg "
        "radians sinc true_divide"
    ),
    "arranging": (
        "append delete flatten fliplr flipud geomspace identity insert logspace movedim ravel "
        "rot90 swapaxes tri unflatten"
    ),
    "attention": "rope scaled_dot_product_attention",
    "bits": (
        "bit_count bitwise_not clear_bit count_leading_zeros count_trailing_zeros get_bit "
        "popcount rotate_left rotate_right set_bit toggle_bit"
    ),
    "calculus": "allclose cumulative_logsumexp gradient interp isclose logsumexp trapezoid",
    "contraction": "einsum",
    "control": "associative_scan cond fori_loop map_fn scan switch vectorize vmap while_loop",
    "convolution": (
        "conv conv1d conv2d conv3d conv_transpose conv_transpose1d conv_transpose2d "
        "conv_transpose3d fold unfold"
    ),
    "counting": "bincount digitize histogram mode topk",
    "dropping": "alpha_dropout dropout",
    "lookup": (
        "argwhere diag_indices embedding flatnonzero one_hot ravel_multi_index tril_indices "
        "triu_indices unravel_index"
    ),
    "nan_reductions": (
        "nan_to_num nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod "
        "nanstd nansum nanvar"
    ),
    "normalization": "batch_norm group_norm instance_norm layer_norm normalize rms_norm",
    "padding": "pad",
    "pooling": (
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d "
        "adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d "
        "global_avg_pool global_max_pool max_pool1d max_pool2d max_pool3d"
    ),
    "products": "dot inner matvec outer vdot vecmat",
    "quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
    "reduce_names": (
        "reduce_all reduce_any reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod "
        "reduce_std reduce_sum reduce_var"
    ),
    "resizing": "pixel_shuffle pixel_unshuffle resize",
    "scattering": (
        "scatter scatter_add scatter_max scatter_mean scatter_min scatter_mul scatter_softmax "
        "segment_max segment_mean segment_min segment_prod segment_sum"
    ),
    "signal": (
        "amplitude_to_db bartlett_window blackman_window convolve correlate db_to_amplitude "
        "db_to_power dct dst fftconvolve frame get_window hamming_window hann_window hilbert "
        "idct idst istft kaiser_window mel_filter_bank mel_spectrogram mfcc overlap_add "
        "power_to_db preemphasis rectangular_window spectrogram stft"
    ),
    "special": "digamma erf erfc erfinv lgamma",
    "stacking": (
        "array_split atleast_1d atleast_2d atleast_3d chunk column_stack dsplit dstack hsplit "
        "hstack split vsplit vstack"
    ),
    "statistics": "amax amin average corrcoef cov cumprod cumsum gaussian ptp",
    "updates": (
        "dynamic_slice fill_diagonal gather gather_nd index_add index_update masked_fill "
        "masked_select put_along_axis scatter_nd slice_update tensor_scatter_nd_add "
        "tensor_scatter_nd_max tensor_scatter_nd_min tensor_scatter_nd_update"
    ),
}
_CHAPTER_OF: Final = {
    name: chapter for chapter, names in CHAPTERS.items() for name in names.split()
}


def find(name: str) -> Any:
    """What `ops` has under a name that is not loaded yet; AttributeError where it has nothing."""
    chapter = _CHAPTER_OF.get(name)
    if chapter is not None:
        return getattr(import_module(f"ember_ml.ops.{chapter}"), name)
    if name in NAMESPACES or name in CHAPTERS:
        return import_module(f"ember_ml.ops.{name}")
    raise AttributeError(f"module 'ember_ml.ops' has no attribute {name!r}")


def require(name: str) -> None:
    """Load the chapter that registers an op, where there is one."""
    chapter = _CHAPTER_OF.get(name)
    if chapter is not None:
        import_module(f"ember_ml.ops.{chapter}")


def load_all() -> None:
    """Load every chapter, so that the registry has every op."""
    for chapter in (*CHAPTERS, *NAMESPACES):
        import_module(f"ember_ml.ops.{chapter}")
