"""Files that are wrong give FormatError: never a crash, a hang, or other data than they hold."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import ember_ml as em
from ember_ml import ops
from ember_ml.io import safetensors as own

MUTATIONS = 10_000


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory in memory where there is one: thousands of files are written."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        yield Path(directory)


def pack(header: Any, data: bytes = b"\0" * 8) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


PLAIN = json.dumps(entry()).encode()

WRONG: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "0 bytes, fewer than a header"),
    "shorter than a length": (b"\0" * 7, "7 bytes"),
    "length beyond the file": (struct.pack("<Q", 100) + b"{}", "said to have 100 bytes"),
    "huge length": (struct.pack("<Q", 2**64 - 1) + b"{}", "said to have"),
    "no header": (struct.pack("<Q", 0), "brace"),
    "no JSON": (pack(b"{]", b""), "no JSON"),
    "other JSON": (pack(b"[]", b""), "brace"),
    "space before": (pack(b' {"a":' + PLAIN + b"}"), "brace"),
    "rubbish behind": (pack(b'{"a":' + PLAIN + b"}\0"), "no JSON"),
    "not UTF-8": (pack(b'{"\xff":' + PLAIN + b"}"), "not UTF-8"),
    "half a surrogate pair": (pack(b'{"\\ud800":' + PLAIN + b"}"), "surrogate"),
    "half a pair in metadata": (
        pack(b'{"__metadata__":{"a":"\\udfff"},"a":' + PLAIN + b"}"),
        "surrogate",
    ),
    "nesting bomb": (pack(b'{"a":' + b"[" * 10**6), "nested too deeply"),
    "nesting bomb of objects": (pack(b'{"a":' * 10**6), "nested too deeply"),
    "duplicate tensor": (pack(b'{"a":' + PLAIN + b',"a":' + PLAIN + b"}"), "'a' occurs twice"),
    "duplicate field": (
        pack(b'{"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}'),
        "'dtype' occurs twice",
    ),
    "duplicate metadata": (
        pack(b'{"__metadata__":{"x":"1","x":"2"},"a":' + PLAIN + b"}"),
        "'x' occurs twice",
    ),
    "metadata of numbers": (pack({"__metadata__": {"x": 1}, "a": entry()}), "metadata"),
    "unknown dtype": (pack({"a": entry("F31")}), "unknown dtype 'F31'"),
    "dtype of another type": (pack({"a": entry(["F32"])}), "unknown dtype"),
    "missing field": (pack({"a": {"dtype": "F32", "shape": [2]}}), "not described"),
    "further field": (pack({"a": {**entry(), "x": 1}}), "not described"),
    "entry as a list": (pack({"a": ["F32", [2], [0, 8]]}), "not described"),
    "negative shape": (pack({"a": entry(shape=[-2])}), "natural numbers"),
    "negative shapes": (pack({"a": entry(shape=[-1, -2])}), "natural numbers"),
    "fractional shape": (pack({"a": entry(shape=[2.0])}), "natural numbers"),
    "truth as shape": (pack({"a": entry(shape=[True, 2])}), "natural numbers"),
    "text as shape": (pack({"a": entry(shape="2")}), "natural numbers"),
    "minus zero": (pack(b'{"a":' + PLAIN.replace(b"[0,", b"[-0,") + b"}"), "natural numbers"),
    "infinite shape": (pack(b'{"a":' + PLAIN.replace(b"[2]", b"[Infinity]") + b"}"), "Infinity"),
    "enormous shape": (pack({"a": entry(shape=[10**30])}), "has not"),
    "a shape of many digits": (
        pack(b'{"a":' + PLAIN.replace(b"[2]", b"[" + b"9" * 10**5 + b"]") + b"}"),
        "no JSON",
    ),
    "many axes": (pack({"a": entry(shape=[1] * 10**5)}), "100000 axes"),
    "no elements, no address": (
        pack({"a": entry(), "b": entry(shape=[0, 2**62, 2**62], offsets=[8, 8])}),
        "no array can have",
    ),
    "negative offset": (pack({"a": entry(offsets=[-8, 0])}), "natural numbers"),
    "three offsets": (pack({"a": entry(offsets=[0, 8, 8])}), "natural numbers"),
    "offsets backwards": (pack({"a": entry(offsets=[8, 0])}), "has not"),
    "offsets beyond the file": (pack({"a": entry(offsets=[8, 16])}), "begins at byte 8"),
    "too few bytes": (pack({"a": entry(shape=[3])}), "8 bytes, which F32"),
    "part of a byte": (pack({"a": entry("F4", [3], [0, 2])}, b"12"), "2 bytes, which F4"),
    "overlap": (
        pack({"a": entry(), "b": entry(offsets=[4, 12])}, b"\0" * 12),
        "'b' begins at byte 4",
    ),
    "same bytes twice": (pack({"a": entry(), "b": entry()}), "begins at byte 0"),
    "hole": (
        pack({"a": entry(), "b": entry(offsets=[12, 20])}, b"\0" * 20),
        "'b' begins at byte 12",
    ),
    "hole before": (pack({"a": entry(offsets=[4, 12])}, b"\0" * 12), "'a' begins at byte 4"),
    "truncated data": (pack({"a": entry()}, b"\0" * 7), "take 8 bytes, and it holds 7"),
    "data behind": (pack({"a": entry()}, b"\0" * 9), "take 8 bytes, and it holds 9"),
    "truth values of other bytes": (
        pack({"a": entry("BOOL", [8])}, bytes(range(8))),
        "other than 0 and 1",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_thing_that_can_be_wrong(name: str, tmp_path: Path) -> None:
    content, said = WRONG[name]
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    for mmap in (True, False):
        with pytest.raises(em.FormatError, match=said) as caught:
            em.load(path, mmap=mmap)
        assert str(path) in str(caught.value)
        assert isinstance(caught.value, ValueError)


def test_a_header_beyond_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with open(path, "wb") as file:  # a file with a hole, which takes no room
        file.write(struct.pack("<Q", own.MAX_HEADER + 1))
        file.truncate(own.MAX_HEADER + 100)
    with pytest.raises(em.FormatError, match="100000000 at most"):
        em.load(path)


def test_a_header_that_would_be_too_long_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "MAX_HEADER", 1000)
    with pytest.raises(em.DomainError, match="header of"):
        em.save(tmp_path / "x.safetensors", {"text": "x" * 1000})
    assert list(tmp_path.iterdir()) == []


TREES = {
    "no JSON": "{",
    "no object": "[]",
    "no tree": '{"version":1}',
    "another version": '{"version":2,"tree":{"tensor":"a"}}',
    "version of another type": '{"version":"1","tree":{"tensor":"a"}}',
    "no tensors": '{"version":1,"tree":null}',
    "another tensor": '{"version":1,"tree":{"tensor":"b"}}',
    "one more tensor": '{"version":1,"tree":[{"tensor":"a"},{"tensor":"b"}]}',
    "no name": '{"version":1,"tree":{"tensor":3}}',
    "unknown kind": '{"version":1,"tree":[{"tensor":"a"},{"set":[]}]}',
    "empty object": '{"version":1,"tree":[{"tensor":"a"},{}]}',
    "dict without pairs": '{"version":1,"tree":{"dict":["a",{"tensor":"a"}]}}',
    "dict with a list as key": '{"version":1,"tree":{"dict":[[[],{"tensor":"a"}]]}}',
    "dict with a complex key": '{"version":1,"tree":{"dict":[[{"complex":[1.0,2.0]},1]]}}',
    "the same key twice": '{"version":1,"tree":{"dict":[[1,{"tensor":"a"}],[true,2]]}}',
    "a float that is none": '{"version":1,"tree":[{"tensor":"a"},{"float":"1"}]}',
    "a complex that is none": '{"version":1,"tree":[{"tensor":"a"},{"complex":["1",2]}]}',
    "a constant of JavaScript": '{"version":1,"tree":[{"tensor":"a"},NaN]}',
    "a dtype that is not stored so": '{"version":1,"tree":{"tensor":"a","dtype":"complex128"}}',
    "a dtype that needs no word": '{"version":1,"tree":{"tensor":"a","dtype":"float32"}}',
    "gradients of no truth": '{"version":1,"tree":{"tensor":"a","requires_grad":1}}',
    "gradients of integers": '{"version":1,"tree":{"tensor":"a","requires_grad":true}}',
    "a backend of no text": '{"version":1,"backend":3,"tree":{"tensor":"a"}}',
    "a device of no text": '{"version":1,"tree":{"tensor":"a","device":["cpu"]}}',
    "deep": '{"version":1,"tree":' + "[" * 70 + '{"tensor":"a"}' + "]" * 70 + "}",
    "deeper": '{"version":1,"tree":' + "[" * 10**5 + "]" * 10**5 + "}",
}


@pytest.mark.parametrize("name", TREES)
def test_trees_that_are_wrong(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    header = {"__metadata__": {"ember_ml": TREES[name]}, "a": entry("I32")}
    path.write_bytes(pack(header))
    with pytest.raises(em.FormatError, match=r"x\.safetensors"):
        em.load(path, backend="numpy")
    with em.io.open_file(path, backend="numpy") as file:  # the tensors are sound
        assert list(file) == ["a"]


# --- Mutations ------------------------------------------------------------------------------


def samples() -> list[bytes]:
    """Small files with every part of the format: of this library, and of the reference."""
    rng = np.random.default_rng(0)
    tree = {
        "layers": [{"w": rng.random((3, 4), dtype="float32"), "b": np.arange(5)} for _ in range(2)],
        "mask": np.array([True, False, True]),
        "half": ops.ones((2, 3), dtype="bfloat16"),
        "z": np.array([1 + 2j, 3j]),
        "c": np.array([1 + 2j], dtype="complex64"),
        "empty": np.zeros((0, 3)),
        "scalar": np.float16(1.5),
        "step": 7,
        "pair": (1.5, "text"),
    }
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "x.safetensors"
        em.save(path, tree, metadata={"author": "me"})
        ours = path.read_bytes()
    arrays = {
        "a": np.arange(6, dtype="int16").reshape(2, 3),
        "b.c": np.ones(3),
        "": np.ones((1, 0)),
    }
    return [
        ours,
        safetensors.numpy.save(arrays, {"k": "v", "é": "ü"}),
        safetensors.numpy.save({"u": np.arange(4, dtype="uint8"), "v": np.array(2.5)}),
        pack({"a": entry("F8_E4M3", [8]), "b": entry("F4", [2, 8], [8, 16])}, bytes(16)),
    ]


def mutated_bytes(rng: random.Random, content: bytes) -> bytes:
    """Bits flipped, bytes replaced, inserted, removed, doubled, cut off."""
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        # Headers hold what can go wrong; the first bytes of all.
        end = rng.choice((8, min(len(out), 400), len(out)))
        at = rng.randrange(max(min(end, len(out)), 1))
        kind = rng.randrange(7)
        if kind == 0 and out:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and out:
            out[at] = rng.choice(b'{}[],:"\\0123456789-.eEtrufalsn \n\xff\x00')
        elif kind == 2:
            out[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
        elif kind == 3:
            del out[at : at + rng.randrange(1, 9)]
        elif kind == 4:
            out[at:at] = out[at : at + rng.randrange(1, 60)]
        elif kind == 5:
            del out[at:]
        else:
            length = rng.choice((0, 1, len(out), len(out) - 8, 2**31, 2**63, 2**64 - 1))
            out[:8] = struct.pack("<Q", length % 2**64)
    return bytes(out)


ODD_VALUES: list[Any] = [
    -1, 0, 1, 2, 3, 7, 8, 2**31, 2**32, 2**53, 2**63, 2**64, 10**30, 1.0, 2.5, None, True, "",
    "F32", "I8", "BOOL", "F8_E4M3", "F64", "C64", [], {}, [1], [0, 0], [2, 2, 2], [0, 2**60],
    "x" * 50,
]  # fmt: skip


def mutated_header(rng: random.Random, content: bytes) -> bytes:
    """The header as JSON with a value, a key or an entry changed, doubled, exchanged or gone."""
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    names = [name for name in header if name != "__metadata__"]
    name, other = rng.choice(names), rng.choice(names)
    kind = rng.randrange(9)
    doubled = b""
    if kind == 0:
        header[name][rng.choice(["dtype", "shape", "data_offsets"])] = rng.choice(ODD_VALUES)
    elif kind == 1 and header[name]["shape"]:
        shape = header[name]["shape"]
        shape[rng.randrange(len(shape))] = rng.choice(ODD_VALUES)
    elif kind == 2:
        header[name]["data_offsets"][rng.randrange(2)] += rng.choice((-8, -4, -1, 1, 4, 8, 64))
    elif kind == 3:
        header[name], header[other] = header[other], header[name]  # sound, with names exchanged
    elif kind == 4:
        del header[name]
    elif kind == 5:
        header[other + rng.choice(("", "x"))] = dict(header[name])
    elif kind == 6:
        doubled = b"," + json.dumps({name: header[other]}).encode()[1:-1]
    elif kind == 7:
        rng.shuffle(header[name]["shape"])  # sound, of another shape
    else:
        texts = header.setdefault("__metadata__", {"k": "v"})
        texts[rng.choice([*texts, "new"])] = rng.choice(ODD_VALUES)
    text = json.dumps(header, separators=rng.choice(((",", ":"), (", ", " : ")))).encode()
    text = text[:-1] + doubled + b"}" + b" " * rng.randrange(3)
    return struct.pack("<Q", len(text)) + text + data


def oracle(content: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]] | None:
    """What the reference library reads; None where it refuses, or passes over duplicates."""
    try:
        found = safetensors.deserialize(content)
    except safetensors.SafetensorError:
        return None
    (length,) = struct.unpack("<Q", content[:8])

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError
        return dict(pairs)

    try:
        json.loads(content[8 : 8 + length], object_pairs_hook=once)
    except ValueError:
        return None
    return {n: (e["dtype"], tuple(e["shape"]), bytes(e["data"])) for n, e in found}


CODES = {dtype.name: code for code, dtype in own._CODES.items()}


def described(x: em.Tensor) -> tuple[str, tuple[int, ...], bytes]:
    content = x.numpy().tobytes()
    if x.dtype == "complex128":
        return "F64", (*x.shape, 2), content
    return CODES[x.dtype.name], x.shape, content


def tensors_in(tree: Any) -> Iterator[em.Tensor]:
    if isinstance(tree, em.Tensor):
        yield tree
    elif isinstance(tree, dict | list | tuple):
        for node in tree.values() if isinstance(tree, dict) else tree:
            yield from tensors_in(node)


def check(path: Path, content: bytes, mmap: bool) -> str:
    """Load a file, and compare with the reference; gives what happened."""
    path.write_bytes(content)
    wanted = oracle(content)
    try:
        loaded = em.load(path, backend="numpy", mmap=mmap)
    except em.FormatError:
        outcome = "refused"
    except em.DTypeError:
        codes = {code for code, _, _ in (wanted or {}).values()}
        if codes <= own._CODES.keys():
            raise
        return "dtype"
    else:
        assert wanted is not None, "the reference refuses what was loaded"
        got = sorted(map(described, tensors_in(loaded)))
        assert got == sorted(wanted.values())
        outcome = "loaded"
    try:
        with em.io.open_file(path, backend="numpy", mmap=mmap) as file:
            by_name = {name: described(file[name]) for name in file}
    except em.FormatError:
        assert outcome == "refused"
    else:
        assert by_name == wanted
    return outcome


def test_ten_thousand_mutations(place: Path) -> None:
    rng = random.Random(20_24)
    originals = samples()
    path = place / "x.safetensors"
    for content in originals[:3]:
        assert check(path, content, True) == "loaded"
    assert check(path, originals[3], True) == "dtype"
    outcomes = {"refused": 0, "loaded": 0, "dtype": 0}
    for number in range(MUTATIONS):
        mutate: Callable[[random.Random, bytes], bytes] = rng.choice(
            (mutated_bytes, mutated_header)
        )
        content = mutate(rng, rng.choice(originals))
        try:
            outcomes[check(path, content, bool(number % 2))] += 1
        except BaseException as error:
            error.add_note(f"mutation {number}: {content!r}")
            raise
    # The mutations reach both sides of the line.
    assert outcomes["refused"] > MUTATIONS // 2
    assert outcomes["loaded"] > MUTATIONS // 20
    assert outcomes["dtype"] > MUTATIONS // 100


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_mutations_of_numpys_files(suffix: str, place: Path) -> None:
    rng = random.Random(7)
    originals = []
    for i, array in enumerate(
        (np.arange(6.0).reshape(2, 3), np.arange(4, dtype=">i2"), np.array(True))
    ):
        path = place / f"{i}{suffix}"
        if suffix == ".npy":
            np.save(path, array)
        else:
            (np.savez_compressed if i else np.savez)(path, a=array, b=np.asfortranarray(array))
        originals.append(path.read_bytes())
    path = place / f"x{suffix}"
    outcomes = {"refused": 0, "loaded": 0}
    for number in range(2000):
        content = mutated_bytes(rng, rng.choice(originals))
        path.write_bytes(content)
        try:
            loaded = em.load(path, backend="numpy", mmap=bool(number % 2))
        except (em.FormatError, em.DTypeError):
            outcomes["refused"] += 1
            continue
        wanted = np.load(path, allow_pickle=False)
        try:
            pairs = (
                [(loaded, wanted)]
                if suffix == ".npy"
                else [(loaded[name], wanted[name]) for name in wanted.files]
            )
            if suffix == ".npz":
                assert set(loaded) == set(wanted.files)
            for x, array in pairs:
                array = array.astype(array.dtype.newbyteorder("="))
                assert (x.dtype, x.shape) == (array.dtype.name, array.shape)
                assert x.numpy().tobytes() == array.tobytes(), content
        finally:
            if suffix == ".npz":
                wanted.close()
        outcomes["loaded"] += 1
    assert min(outcomes.values()) > 20, outcomes


NPY_HEADERS = {
    "code": "{'descr': __import__('os').getcwd(), 'fortran_order': False, 'shape': (2,), }",
    "nesting": "{'descr': '<f4', 'fortran_order': False, 'shape': " + "(" * 9000 + ", }",
    "unary operators": "{'descr': '<f4', 'fortran_order': False, 'shape': ("
    + "-" * 9000
    + "1,), }",
    "negative": "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
    "no tuple": "{'descr': '<f4', 'fortran_order': False, 'shape': (2), }",
    "too large": "{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999999999,), }",
    "too large to multiply": "{'descr': '<f4', 'fortran_order': False, 'shape': (0, "
    + "999999999999999999, " * 5
    + "), }",
    "too long": "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }" + " " * 70_000,
    "missing field": "{'descr': '<f4', 'shape': (2,), }",
    "field twice": "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
    "further field": "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': True}",
    "wrong size": "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }",
    "not ASCII": "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } é",
}


@pytest.mark.parametrize("name", NPY_HEADERS)
def test_npy_headers_that_are_wrong(name: str, tmp_path: Path) -> None:
    text = NPY_HEADERS[name].encode("latin-1")
    content = b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text + bytes(8)
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(em.FormatError, match=r"x\.npy"):
        em.load(path)


def test_mutations_of_pytorchs_files(place: Path) -> None:
    """PyTorch reads these itself; in a process of their own, since a crash would end this one."""
    program = """
import random, sys
import torch
import ember_ml as em
sys.path.insert(0, sys.argv[2])
from test_malformed import mutated_bytes

path, rng = sys.argv[1], random.Random(3)
tree = {"a": torch.arange(6.0), "b": [torch.ones(2, 2), 3]}
originals = []
for zipped in (True, False):
    torch.save(tree, path, _use_new_zipfile_serialization=zipped)
    originals.append(open(path, "rb").read())
outcomes = {"refused": 0, "loaded": 0}
for number in range(400):
    with open(path, "wb") as file:
        file.write(mutated_bytes(rng, rng.choice(originals)))
    try:
        em.load(path, backend="numpy", mmap=bool(number % 2))
        outcomes["loaded"] += 1
    except (em.FormatError, em.DTypeError):
        outcomes["refused"] += 1
print(*outcomes.values())
"""
    out = subprocess.run(
        [sys.executable, "-c", program, str(place / "x.pt"), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert out.returncode == 0, out.stderr
    assert min(map(int, out.stdout.split())) > 20
