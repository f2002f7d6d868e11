"""A checkpoint that all ranks of a job write together, each its share, and that appears at once.

    step-00000120/
        model-3fa2b1c4-00001-of-00002.safetensors     of rank 0
        model-3fa2b1c4-00002-of-00002.safetensors     of rank 1
        model.safetensors.index.json                  written last, by rank 0

Ranks write their shards under names that no save has used, have them on disk, and tell each
other; then rank 0, which must see all of them, replaces the index. Until then the checkpoint is not
there, or the one before is. What a job that was killed leaves behind, the next save removes.

All ranks must see one directory: on several hosts it lies on a file system that they share. Where
it does not, every rank raises OSError, which says so.

Tensors of which ranks have parts are `Part`s in the tree: see parts.py.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from ember_ml import errors
from ember_ml.errors import DomainError, FormatError
from ember_ml.io import pieces, safetensors, shards
from ember_ml.io.atomic import create, is_abandoned, is_part, replacing, sync_directory
from ember_ml.io.content import Content
from ember_ml.io.formats import MODEL, path_text
from ember_ml.io.parts import Part
from ember_ml.io.progress import ByteProgress
from ember_ml.io.shards import INDEX
from ember_ml.io.tree import METADATA_KEY, Tree, encode, flatten
from ember_ml.tensor import Tensor

__all__ = ["Peers", "appears", "clear", "is_there", "remove", "save_jointly", "together"]

# Names may come late to another host; a save of another job in the same place may take a while.
_SEEN_WITHIN: Final = 15.0
_FREE_WITHIN: Final = 60.0
_Result = TypeVar("_Result")


class Peers(Protocol):
    """The ranks of a job, which tell each other texts."""

    @property
    def rank(self) -> int:
        """The number of this one."""
        ...

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def exchange(self, text: str) -> list[str]:
        """The texts of all ranks, in their order."""
        ...


# --- The same end on all ranks --------------------------------------------------------------


def together(peers: Peers, what: str, action: Callable[[], _Result]) -> _Result:
    """Do something on every rank; where it fails on one, all raise the same error, after it."""
    failure: Exception | None = None
    result: Any = None
    try:
        result = action()
    except Exception as error:
        failure = error
    _require_success(peers, what, failure)
    return result  # type: ignore[no-any-return]  # what the action gave


def _require_success(peers: Peers, what: str, failure: Exception | None) -> None:
    own = "" if failure is None else json.dumps([type(failure).__name__, str(failure)])
    found = {rank: json.loads(text) for rank, text in enumerate(peers.exchange(own)) if text}
    if not found:
        return
    by_text: dict[str, list[int]] = {}
    for rank, (_, text) in found.items():
        by_text.setdefault(text, []).append(rank)
    said = "; ".join(
        f"rank {', '.join(map(str, ranks))}: {text}" for text, ranks in by_text.items()
    )
    kinds = {kind for kind, _ in found.values()}
    raise _kind(kinds.pop() if len(kinds) == 1 else "")(f"{what} failed: {said}") from failure


def _kind(name: str) -> type[Exception]:
    """The class of an error of the library by its name; OSError for what files do."""
    found = getattr(errors, name, None) if name in errors.__all__ else None
    if isinstance(found, type) and found not in (errors.NaNLossError,):
        return found
    builtin = {"FileNotFoundError": FileNotFoundError, "PermissionError": PermissionError}
    return builtin.get(name, OSError)


# --- Saving ---------------------------------------------------------------------------------


def save_jointly(
    path: str | os.PathLike[str], tree: Tree, peers: Peers, of_first: Collection[str] = ()
) -> None:
    """Save a tree that all ranks have, each writing its share; all of them call it.

    A path without a suffix is a directory, else it is `....safetensors` with shards beside it.
    Numbers and texts are those of rank 0, as is all under the keys `of_first` of the tree. Where
    it fails on a rank, all raise the same error, and what was there before is there still.
    """
    text = os.path.abspath(path_text(path, "save_jointly"))
    base = os.path.join(text, MODEL) if not os.path.splitext(text)[1] else text
    if not base.endswith(".safetensors"):
        raise FormatError(f"ranks write '....safetensors' or a directory, and not '{text}'")
    with _Saving(base, peers) as saving:
        structure, share = saving.begin(text, tree, of_first)
        what = saving.what
        failure: Exception | None = None
        try:
            saving.require_shared()
            saving.write(share)
        except Exception as error:
            failure = error
        try:
            _require_success(peers, what, failure)
        except errors.CommunicationError:
            raise
        except Exception:
            saving.withdraw()  # every rank knows that no index will name it
            raise
        try:
            # Where another rank is lost here, the index may be written: shards have to stay.
            together(peers, what, lambda: saving.publish(structure) if peers.rank == 0 else None)
        except errors.CommunicationError:
            raise
        except Exception:
            saving.withdraw()
            raise


class _Saving:
    """One save, as one rank sees it."""

    def __init__(self, base: str, peers: Peers) -> None:
        self.base = base
        self.peers = peers
        self.directory = os.path.dirname(base)
        self.index = base + INDEX
        self.what = ""  # in the words of errors
        self._plan: dict[str, Any] = {}  # of rank 0
        self._token = ""
        self._marker = ""
        self._open: list[int] = []
        self._made: str | None = None  # the directory that this save has made

    def __enter__(self) -> _Saving:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open:
            self._unmark()
        if self._made is not None:
            with suppress(OSError):  # it is not empty, as it should be
                os.rmdir(self._made)
        for descriptor in self._open:
            os.close(descriptor)
        self._open = []

    def _unmark(self) -> None:
        with suppress(OSError):
            os.unlink(os.path.join(self.directory, self._marker))

    def begin(self, path: str, tree: Tree, of_first: Collection[str]) -> tuple[str, pieces.Share]:
        """Agree on what is saved and where; gives the tree as a text, and this rank's share."""
        structure, share = "", pieces.Share({}, {})
        plan: dict[str, Any] = {"path": path, "host": socket.gethostname()}
        failure: Exception | None = None
        try:
            parts: dict[str, Part] = {}
            found, tensors = flatten(tree, parts)
            structure = encode(found)
            own = {name: tensors.pop(name) for name in list(tensors) if _is_of(name, of_first)}
            share = pieces.share_out(tensors, parts, self.peers.rank, self.peers.size)
            plan["digest"] = _digest(tensors, parts)
            if self.peers.rank == 0:
                share.tensors.update(own)
                self._prepare()
                plan["marker"], plan["token"] = self._marker, self._token
        except Exception as error:
            failure = error
            plan["error"] = [type(error).__name__, str(error)]
        plans = [json.loads(one) for one in self.peers.exchange(json.dumps(plan))]
        self.what = f"saving '{plans[0]['path']}' by {self.peers.size} ranks"
        for rank, one in enumerate(plans):
            if "error" in one:
                kind, said = one["error"]
                raise _kind(kind)(f"{self.what} failed: rank {rank}: {said}") from failure
        different = [rank for rank, one in enumerate(plans) if one["digest"] != plans[0]["digest"]]
        if different:
            raise DomainError(
                f"{self.what} failed: ranks {different} have tensors of other names, shapes or "
                f"dtypes than rank 0; all ranks must have the same model"
            )
        self._plan = plans[0]
        self._marker, self._token = self._plan["marker"], self._plan["token"]
        return structure, share

    def _prepare(self) -> None:
        """Make the place to write in, for this job alone; on rank 0."""
        parent = os.path.dirname(self.directory)
        if os.path.basename(self.base) == MODEL and not os.path.isdir(self.directory):
            os.makedirs(self.directory, exist_ok=True)
            self._made = self.directory
            sync_directory(parent)
        self._open.append(_locked(self.directory))
        descriptor, marker = create(self.directory, "saving")
        self._open.append(descriptor)
        self._marker, self._token = os.path.basename(marker), os.urandom(4).hex()
        if not os.path.lexists(self.index):
            # Those of a job that was killed; others go when their checkpoint is replaced.
            shards.remove_shards(self.base, set(), set())

    def require_shared(self) -> None:
        """Raise OSError where this rank does not see what rank 0 has put down."""
        path = os.path.join(self.directory, self._marker)
        if appears(path):
            return
        raise OSError(
            f"on host {socket.gethostname()}, '{self.directory}' does not hold what rank 0 on host "
            f"{self._plan['host']} has just put there. Ranks write a checkpoint together: give a "
            f"directory on a file system that all hosts share (NFS, Lustre, a shared volume), by "
            f"the same path"
        )

    def _file(self, rank: int) -> str:
        """The shard of a rank. No other save has this name: ranks of a dead job that wake up late
        write to names that nobody reads.
        """
        stem = os.path.basename(self.base).removesuffix(".safetensors")
        return f"{stem}-{self._token}-{rank + 1:05}-of-{self.peers.size:05}.safetensors"

    def write(self, share: pieces.Share) -> None:
        """Write the shard of this rank, and have it on disk."""
        mark = {
            "format": "pt",
            shards.MARK: os.path.basename(self.index),
            pieces.PIECES_KEY: pieces.told(share),
        }
        path = os.path.join(self.directory, self._file(self.peers.rank))
        total = sum(x.nbytes for x in share.tensors.values())
        label = f"saving {os.path.basename(path)}"
        with ByteProgress(label, total) as progress, replacing(path) as file:
            safetensors.write(file, share.tensors, mark, progress)

    def withdraw(self) -> None:
        """Remove the shard of this rank, after a failure that all ranks know of."""
        with suppress(OSError):
            os.unlink(os.path.join(self.directory, self._file(self.peers.rank)))
        self.peers.exchange("")  # the directory is empty when rank 0 removes it

    def publish(self, structure: str) -> None:
        """Let the checkpoint be there; on rank 0."""
        files = [self._file(rank) for rank in range(self.peers.size)]
        placed: dict[str, str] = {}
        told: list[str] = []
        total = 0
        for rank, file in enumerate(files):
            path = os.path.join(self.directory, file)
            if not appears(path):
                raise OSError(
                    f"rank 0 on host {socket.gethostname()} does not see '{path}', which rank "
                    f"{rank} has written; all hosts must share this directory"
                )
            with Content(path, mmap=False) as content:
                header = safetensors.read_header(content)
            placed.update(dict.fromkeys(header.entries, file))
            total += sum(entry.end - entry.start for entry in header.entries.values())
            told.append(header.metadata[pieces.PIECES_KEY])
        wholes = pieces.gathered(told, f"'{self.base}': its pieces")
        metadata = {METADATA_KEY: structure}
        if wholes:
            metadata[pieces.PIECES_KEY] = pieces.index_text(wholes)
        index = {"metadata": {"total_size": total, **metadata}, "weight_map": placed}
        content_text = json.dumps(index, indent=2, ensure_ascii=False) + "\n"
        old = shards.files_of(self.index)
        self._unmark()
        with replacing(self.index) as stream:
            stream.write(content_text.encode("utf-8"))
        # It is there: what is left to do cannot fail it.
        with suppress(OSError):
            if os.path.lexists(self.base):
                os.unlink(self.base)
            shards.remove_shards(self.base, old, set(files))


def _is_of(name: str, keys: Collection[str]) -> bool:
    return name.partition(".")[0] in keys


def _digest(tensors: dict[str, Tensor], parts: dict[str, Part]) -> str:
    """What must be the same on all ranks, in short."""
    rows = [
        (name, x.dtype.name, parts[name].shape if name in parts else x.shape, name in parts)
        for name, x in tensors.items()
    ]
    return hashlib.sha256(json.dumps(rows).encode("utf-8", "backslashreplace")).hexdigest()


def _locked(directory: str) -> int:
    """A descriptor that keeps other saves out of a directory, until it is closed."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    end = time.monotonic() + _FREE_WITHIN
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                os.close(descriptor)
                raise OSError(
                    f"another job has been saving in '{directory}' for {_FREE_WITHIN:.0f} s; "
                    f"give each job a directory of its own"
                ) from None
            time.sleep(0.1)
            continue
        except OSError:  # a file system without locks
            pass
        return descriptor


def appears(path: str) -> bool:
    """Whether a file is there, or comes within some seconds: hosts remember what they saw."""
    end = time.monotonic() + _SEEN_WITHIN
    while not os.path.exists(path):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
        # Opening a directory makes network file systems look again.
        with suppress(OSError):
            os.listdir(os.path.dirname(path))
    return True


# --- Checkpoints that are there, and what is left of others --------------------------------


def is_there(directory: str) -> bool:
    """True for a directory that holds a whole checkpoint."""
    return any(os.path.isfile(os.path.join(directory, name)) for name in (MODEL + INDEX, MODEL))


def remove(path: str) -> None:
    """Remove a checkpoint, whole or in shards; a kill in between leaves what `clear` removes."""
    if not os.path.isdir(path):
        index = path + INDEX
        old = shards.files_of(index)
        for one in (index, path):
            with suppress(FileNotFoundError):
                os.unlink(one)
        shards.remove_shards(path, old, set())
        return
    base = os.path.join(path, MODEL)
    old = shards.files_of(base + INDEX)
    # Without its index it is not there any more, and nobody misses a shard.
    for one in (base + INDEX, base):
        with suppress(FileNotFoundError):
            os.unlink(one)
    sync_directory(path)
    _remove_leftovers(path, old)


def clear(directory: str) -> None:
    """Remove a directory in which a save was killed before its end, and none goes on."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # gone
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_free = True
    except BlockingIOError:  # it is being written
        is_free = False
    except OSError:  # NFS locks no directories: files in it tell
        is_free = True
    try:
        if is_free and not is_there(directory) and _is_left(directory):
            _remove_leftovers(directory, set())
    finally:
        os.close(descriptor)


def _is_left(directory: str) -> bool:
    """True where the writers of all files that were not finished are dead."""
    parts = [name for name in os.listdir(directory) if is_part(name)]
    return all(is_abandoned(os.path.join(directory, name)) for name in parts)


def _remove_leftovers(directory: str, old: set[str]) -> None:
    """Remove what saves have written to a directory, and then it, unless others use it as well."""
    shards.remove_shards(os.path.join(directory, MODEL), old, set())
    for name in os.listdir(directory):
        if is_part(name):
            with suppress(OSError):
                os.unlink(os.path.join(directory, name))
    with suppress(OSError):
        os.rmdir(directory)
