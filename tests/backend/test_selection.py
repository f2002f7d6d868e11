"""Which backend computes, and who sees a change of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.backend import selection
from ember_ml.backend.numpy import NumpyBackend
from ember_ml.ops import add

BACKENDS = ("numpy", "torch", "jax", "mlx")


def python(program: str, **environment: str) -> str:
    import os

    out = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    return out.stdout + out.stderr


def test_set_and_get() -> None:
    em.set_backend("jax")
    assert em.get_backend() == "jax" == ops.get_backend()
    assert em.get_backend_module().__name__ == "ember_ml.backend.jax"
    ops.set_backend("numpy")
    assert em.get_backend() == "numpy"


def test_scope_is_restored_after_an_error() -> None:
    em.set_backend("numpy")

    def fail() -> None:
        with em.use_backend("torch"):
            raise RuntimeError(em.get_backend())

    with pytest.raises(RuntimeError, match="torch"):
        fail()
    assert em.get_backend() == "numpy"


def test_scopes_nest_and_one_object_can_be_used_again() -> None:
    scope = em.use_backend("torch")
    with scope, em.use_backend("mlx"):
        assert em.get_backend() == "mlx"
        with scope:
            assert em.get_backend() == "torch"
        assert em.get_backend() == "mlx"
    assert em.get_backend() == "numpy"


def test_decorator_of_functions_and_coroutines() -> None:
    @em.use_backend("torch")
    def plain() -> str:
        return em.get_backend()

    @em.use_backend("mlx")
    async def later() -> str:
        await asyncio.sleep(0)
        return em.get_backend()

    assert plain() == "torch"
    assert asyncio.run(later()) == "mlx"
    assert em.get_backend() == "numpy"


def test_64_threads_see_their_own() -> None:
    for name in BACKENDS:
        selection.load(name)
    barrier = threading.Barrier(64)

    def work(i: int) -> bool:
        name = BACKENDS[i % 4]
        em.set_backend(name)
        barrier.wait()
        seen = []
        for turn in range(20):
            other = BACKENDS[(i + turn) % 4]
            with em.use_backend(other):
                seen.append(em.get_backend() == other and ops.ones(2).backend == other)
            seen.append(em.get_backend() == name)
        return all(seen)

    with ThreadPoolExecutor(64) as pool:
        assert all(pool.map(work, range(64)))
    assert em.get_backend() == "numpy"


def test_64_tasks_see_their_own() -> None:
    async def work(i: int) -> bool:
        name = BACKENDS[i % 4]
        em.set_backend(name)
        good = True
        for turn in range(20):
            await asyncio.sleep(0)
            good &= em.get_backend() == name
            with em.use_backend(BACKENDS[(i + turn) % 4]):
                await asyncio.sleep(0)
                good &= ops.zeros(1).backend == BACKENDS[(i + turn) % 4]
        return good

    async def bystander() -> str:
        await asyncio.sleep(0)
        return em.get_backend()

    async def main() -> list[bool]:
        results = await asyncio.gather(*(work(i) for i in range(64)))
        assert await bystander() == "numpy"
        return results

    assert all(asyncio.run(main()))
    assert em.get_backend() == "numpy"


def test_main_thread_sets_the_default_of_new_threads() -> None:
    em.set_backend("mlx")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(em.get_backend).result() == "mlx"
        pool.submit(em.set_backend, "jax").result()
        assert pool.submit(em.get_backend).result() == "jax"
    assert em.get_backend() == "mlx"


def test_order_explicit_environment_file() -> None:
    program = "import ember_ml as em; print(em.get_backend())"
    assert python(program, EMBER_ML_BACKEND="jax").strip() == "jax"
    home = Path.home()
    (home / ".ember").mkdir(parents=True, exist_ok=True)
    (home / ".ember" / "backend").write_text("mlx\n")
    try:
        assert python(program).strip() == "mlx"
        assert python(program, EMBER_ML_BACKEND="numpy").strip() == "numpy"
        explicit = "import ember_ml as em; em.set_backend('torch'); print(em.get_backend())"
        assert python(explicit, EMBER_ML_BACKEND="numpy").strip() == "torch"
    finally:
        (home / ".ember" / "backend").unlink()
    assert python(program).strip() == "torch"  # automatic: torch is installed here


def test_only_persist_writes_to_disk() -> None:
    path = selection.backend_file()
    em.set_backend("torch")
    assert not path.exists()
    em.set_backend("jax", persist=True)
    assert path.read_text() == "jax\n"
    assert [p.name for p in path.parent.iterdir()] == ["backend"]
    path.unlink()


def test_unknown_name_lists_what_is_installed() -> None:
    with pytest.raises(em.UnknownBackendError, match=r"tensorflow.*numpy.*pip install"):
        em.set_backend("tensorflow")
    assert em.get_backend() == "numpy"
    with pytest.raises(ValueError):
        em.use_backend("nope").__enter__()


@pytest.mark.parametrize(
    ("source", "text"), [("environment", "EMBER_ML_BACKEND"), ("file", ".ember")]
)
def test_unknown_name_tells_its_source(source: str, text: str) -> None:
    program = "import ember_ml as em; em.get_backend()"
    if source == "environment":
        assert text in python(program, EMBER_ML_BACKEND="tf")
    else:
        path = selection.backend_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("tf")
        out = python(program)
        path.unlink()
        assert text in out
        assert "'tf'" in out


def test_missing_package_names_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "_installed", lambda name: name == "numpy")
    monkeypatch.delitem(selection._loaded, "jax", raising=False)
    with pytest.raises(em.BackendUnavailableError, match=r"numpy.*pip install 'ember-ml\[jax\]'"):
        em.set_backend("jax")
    assert issubclass(em.BackendUnavailableError, ImportError)
    assert em.available_backends() == ("numpy",)
    assert em.auto_select_backend() == ("numpy", "cpu")


def test_broken_package_reports_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libfoo.so is missing')")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]) if len(sys.argv) > 1 else None\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "import ember_ml as em\n"
        "try: em.set_backend('torch')\n"
        "except em.BackendUnavailableError as error: print(error)\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "print(em.auto_select_backend())"
    )
    out = python(program)
    assert "libfoo.so is missing" in out
    assert "('jax', 'cpu')" in out


def test_register_backend() -> None:
    class Mine(NumpyBackend):
        name = "mine"

    def load() -> Mine:
        return Mine(sys.modules[__name__])

    em.register_backend("mine", load)
    try:
        with em.use_backend("mine"):
            x = ops.ones(3)
            assert x.backend == "mine"
            assert (x + 1).tolist() == [2, 2, 2]
            assert em.get_backend_module() is sys.modules[__name__]
        assert "mine" in em.available_backends()
        with pytest.raises(em.BackendMismatchError, match=r"'mine' and 'numpy'"):
            ops.add(x, ops.ones(3))
        em.register_backend("wrong", lambda: 3)  # type: ignore[arg-type, return-value]
        with pytest.raises(em.BackendUnavailableError, match="wrong"):
            em.set_backend("wrong")
        with pytest.raises(em.UnknownBackendError):
            em.register_backend("torch", load)
    finally:
        selection._loaders.clear()
        selection._loaded.pop("mine", None)


def test_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    class Theirs(NumpyBackend):
        name = "theirs"

    class Point:
        name = "theirs"

        def load(self) -> object:
            return lambda: Theirs(sys.modules[__name__])

    monkeypatch.setattr(selection, "_entry_points", lambda: {"theirs": Point()})
    try:
        assert "theirs" in em.available_backends()
        with em.use_backend("theirs"):
            assert ops.zeros(2).backend == "theirs"
    finally:
        selection._loaded.pop("theirs", None)


def test_tensors_outlive_a_switch_and_imports_do_not_go_stale() -> None:
    alive = {}
    for name in BACKENDS:
        em.set_backend(name)
        alive[name] = ops.asarray([[1.0, 2.0], [3.0, 4.0]])
        assert add([1.0], [2.0]).backend == name
    em.set_backend("numpy")
    for name, x in alive.items():
        assert x.backend == name
        y = add(x, x) @ x.T + ops.exp(x).sum() * 0 - x[0]
        assert y.backend == name
        assert y.tolist() == [[9.0, 20.0], [21.0, 48.0]]


@pytest.mark.parametrize("second", BACKENDS)
@pytest.mark.parametrize("first", BACKENDS)
def test_two_backends_in_one_call(first: str, second: str) -> None:
    with em.use_backend(first):
        x = ops.ones((2, 2))
    with em.use_backend(second):
        y = ops.ones((2, 2))
    if first == second:
        assert (x + y).backend == first
        return
    calls = (
        lambda: x + y,
        lambda: x @ y,
        lambda: ops.concat([x, y]),
        lambda: ops.where(x > 0, x, y),
        lambda: ops.linalg.solve(x, y),
        lambda: x[y > 0],
    )
    for call in calls:
        with pytest.raises(em.BackendMismatchError) as caught:
            call()
        text = str(caught.value)
        assert f"'{first}'" in text
        assert f"'{second}'" in text
        assert "to_backend" in text


def test_native_arrays_keep_their_backend_and_ndarrays_follow() -> None:
    import jax.numpy as jnp
    import mlx.core as mx
    import numpy as np
    import torch

    for native, name in ((torch.ones(2), "torch"), (jnp.ones(2), "jax"), (mx.ones(2), "mlx")):
        assert ops.add(native, 1).backend == name
        assert ops.add(native, np.ones(2, np.float32)).backend == name
        assert ops.add([1.0, 2.0], native).backend == name
        assert ops.exp(native).backend == name
    assert ops.add(np.ones(2), 1).backend == "numpy"
    with em.use_backend("jax"):
        assert ops.add(np.ones(2), 1).backend == "jax"
