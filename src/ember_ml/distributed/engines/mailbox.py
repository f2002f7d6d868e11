"""Mailbox: bytes from one rank to another by a socket of their own, where an engine has no way.

MLX's ring reaches neighbours only, and its senders wait for who receives. Each rank listens at a
port that the system gives; lines are opened when they are first used.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import Final

__all__ = ["Mailbox"]

# Who calls tells the word that all ranks of the job know, and its own number.
_HELLO: Final = struct.Struct("!qq")
_LENGTH: Final = struct.Struct("!Q")
# How often somebody who waits for a letter looks whether the other is still there.
_LOOK: Final = 0.5
# So often it has to be gone: what it sent before it ended may not have been taken up yet.
_LOOKS: Final = 6


class Mailbox:
    """What other ranks have sent to this one, and what is on its way to them."""

    def __init__(self, rank: int, size: int, host: str) -> None:
        self._rank = rank
        self._server = socket.create_server((host, 0), backlog=size)
        self.port: int = self._server.getsockname()[1]
        self._letters: list[queue.SimpleQueue[bytes | None]] = [
            queue.SimpleQueue() for _ in range(size)
        ]
        # Ranks whose letters are being read now: the end of their line tells that all has come.
        self._reading: set[int] = set()
        self._lines: dict[int, _Line] = {}
        self._peers: list[tuple[str, int]] = []
        self._word = 0

    def open(self, peers: Sequence[tuple[str, int]], word: int) -> None:
        """Begin to take calls; `peers` are the addresses of all ranks."""
        self._peers = list(peers)
        self._word = word
        threading.Thread(target=self._accept, daemon=True, name="ember-mailbox").start()

    def send(self, to: int, letter: bytes) -> None:
        """Send bytes, in the order of calls; who sends does not wait."""
        self._line(to).put(letter)

    def take(self, source: int, timeout: float) -> bytes:
        """The next bytes from a rank."""
        end = time.monotonic() + timeout
        gone = 0
        while True:
            if self._is_there(source) or source in self._reading:
                gone = 0
            else:
                gone += 1
            try:
                # Once a rank has ended, what had come before is still there.
                letter = self._letters[source].get(timeout=_LOOK)
            except queue.Empty:
                if gone >= _LOOKS:
                    raise ConnectionError(f"rank {source} has closed its line") from None
                if time.monotonic() > end:
                    raise TimeoutError(
                        f"rank {source} has sent nothing for {timeout:g} s"
                    ) from None
                continue
            if letter is None:
                self._letters[source].put(None)
                raise ConnectionError(f"rank {source} has closed its line")
            return letter

    def _is_there(self, peer: int) -> bool:
        try:
            return self._line(peer).is_there()
        except OSError:  # nobody listens there any more
            return False

    def close(self, timeout: float) -> None:
        """Wait until what was sent is on its way, and close all lines."""
        end = time.monotonic() + timeout
        for line in self._lines.values():
            line.finish(max(0.0, end - time.monotonic()))
        self._lines.clear()
        self._server.close()

    def _line(self, peer: int) -> _Line:
        found = self._lines.get(peer)
        if found is None:
            found = self._lines[peer] = _Line(
                self._peers[peer], _HELLO.pack(self._word, self._rank)
            )
        return found

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:  # closed
                return
            threading.Thread(
                target=self._read, args=(line,), daemon=True, name="ember-letters"
            ).start()

    def _read(self, line: socket.socket) -> None:
        with line:
            try:
                word, rank = _HELLO.unpack(_exactly(line, _HELLO.size))
                if word != self._word or not 0 <= rank < len(self._letters):
                    return  # nobody of this job
            except OSError:
                return
            self._reading.add(rank)
            try:
                while True:
                    (length,) = _LENGTH.unpack(_exactly(line, _LENGTH.size))
                    self._letters[rank].put(_exactly(line, length))
            except OSError:
                self._letters[rank].put(None)
                self._reading.discard(rank)


class _Line:
    """A connection to another rank, on which a thread sends."""

    def __init__(self, address: tuple[str, int], hello: bytes) -> None:
        self._socket = socket.create_connection(address, timeout=30)
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(hello)
        self._letters: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="ember-sending")
        self._thread.start()

    def put(self, letter: bytes) -> None:
        if self._error is not None:
            raise ConnectionError(f"what was sent before did not arrive ({self._error})")
        self._letters.put(letter)

    def is_there(self) -> bool:
        """False once the other has closed its end; it never writes to this line."""
        try:
            return self._socket.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def finish(self, timeout: float) -> None:
        self._letters.put(None)
        self._thread.join(timeout)
        self._socket.close()

    def _run(self) -> None:
        while (letter := self._letters.get()) is not None:
            try:
                self._socket.sendall(_LENGTH.pack(len(letter)))
                self._socket.sendall(letter)
            except OSError as error:  # told where the next one is sent
                self._error = error
                return


def _exactly(line: socket.socket, count: int) -> bytes:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        read = line.recv_into(view)
        if not read:
            raise ConnectionError("closed")
        view = view[read:]
    return bytes(data)
