"""Files that appear whole or not at all: a kill at any moment leaves the old one or the new one."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import BinaryIO

from ember_ml.errors import DomainError

__all__ = ["create", "exclusive", "is_abandoned", "is_part", "replacing", "sync_directory"]

_NAME_KEPT = 200  # a file name has at most 255 bytes, and ours adds to it
_PART = re.compile(r"\..+\.ember-[0-9a-f]{8}\.tmp", re.DOTALL)


@contextmanager
def replacing(path: str, guard: AbstractContextManager[None] | None = None) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `path` when the block ends without an error.

    It lies beside `path` under a name that no format knows, is on disk before it is renamed, and
    is removed after an error. What a killed process left behind, the next save there removes.
    `guard` is entered for the moment of renaming.
    """
    target = os.path.realpath(path)  # a link stays one, and what it names is replaced
    directory, name = os.path.split(target)
    mode = _mode(path, target)
    if not os.path.isdir(directory):
        raise FileNotFoundError(errno.ENOENT, "no such directory to save in", directory)
    _remove_abandoned(directory)
    descriptor, part = create(directory, name)
    with open(descriptor, "wb") as file:
        try:
            if mode is not None:
                os.fchmod(descriptor, mode)
            yield file
            file.flush()
            os.fsync(descriptor)
            with guard or nullcontext():
                os.replace(part, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(part)
            raise
    sync_directory(directory)


def _mode(path: str, target: str) -> int | None:
    """The permissions of the file that is there already; None where there is none."""
    try:
        found = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found):
        raise DomainError(f"em.save replaces plain files, and '{path}' is a device or a pipe")
    return stat.S_IMODE(found)


def create(directory: str, name: str) -> tuple[int, str]:
    """A new file that tells by a lock that its writer lives; its descriptor and its path."""
    kept = os.fsdecode(os.fsencode(name)[:_NAME_KEPT])
    while True:
        part = os.path.join(directory, f".{kept}.ember-{os.urandom(4).hex()}.tmp")
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        descriptor = os.open(part, flags, 0o666)
        # The lock tells others that the writer lives; it ends with the process, however that ends.
        _lock(descriptor, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):  # another save took it for abandoned before the lock
            if os.path.samestat(os.stat(part), os.fstat(descriptor)):
                return descriptor, part
        os.close(descriptor)


def _remove_abandoned(directory: str) -> None:
    """Remove the parts of earlier saves in this directory whose processes were killed."""
    for part in os.listdir(directory):
        if is_part(part):
            is_abandoned(os.path.join(directory, part), remove=True)


def is_part(name: str) -> bool:
    """True for the name of a file that is being written, or was when its process was killed."""
    return _PART.fullmatch(name) is not None


def is_abandoned(path: str, *, remove: bool = False) -> bool:
    """True where the writer of a file that `create` made is dead for certain."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # gone, or not ours
        return False
    try:
        found = _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if found and remove:  # under the lock: its writer may be about to take it
            with suppress(OSError):  # removed by another save
                os.unlink(path)
        return found
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind)
    except OSError:  # held by another; or a file system without locks, where nothing is removed
        return False
    return True


@contextmanager
def exclusive(directory: str) -> Iterator[None]:
    """A block that other savers of several files in `directory` wait for."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _lock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def sync_directory(directory: str) -> None:
    """Have the names in a directory on disk, where its file system can do that."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
