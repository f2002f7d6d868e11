"""What the launchers of several machines say to each other: lines of JSON over TCP.

The launcher of node 0 listens, and decides. The others come with `hello` (their ranks, and free
ports for them); when all are there, each is told to `start`. All `beat`; a node tells of ranks
that `failed` and when it is `done`; node 0 tells all to `stop`, and each answers `stopped`, with
the last states of its ranks. Nothing that comes is run, and every wait has an end.
"""

from __future__ import annotations

import errno
import json
import socket
import time
from collections.abc import Callable
from typing import Any, Final

from ember_ml.distributed.launching.addresses import Endpoint, resolved
from ember_ml.errors import CommunicationError, DomainError

__all__ = ["PROTOCOL", "Listener", "Peer", "connect"]

PROTOCOL: Final = 2
_MOST_HELD: Final = 8 << 20
_HELLO_SECONDS: Final = 10.0
# Addresses that hosts have for themselves in /etc/hosts.
_OWN_NAME: Final = ("127.0.0.1", "127.0.1.1", "::1")


class Peer:
    """A connection with another launcher: messages in and out, none of which blocks."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = connection
        self.heard = time.monotonic()
        self.closed = ""  # why, where it is
        self._out = b""
        self._in = b""
        self._beaten = 0.0

    def send(self, kind: str, **about: Any) -> None:
        """Say something; what does not go out at once goes with later calls."""
        self._out += json.dumps({"kind": kind, **about}).encode() + b"\n"
        self.flush()

    def beat(self, interval: float, about: Callable[[], dict[str, Any]]) -> None:
        """Say that all is well, if that is due."""
        now = time.monotonic()
        if now - self._beaten >= interval:
            self._beaten = now
            if len(self._out) < _MOST_HELD:
                self.send("beat", **about())
        self.flush()

    def flush(self) -> None:
        try:
            while self._out and not self.closed:
                sent = self.connection.send(self._out)
                self._out = self._out[sent:]
        except BlockingIOError:
            return
        except OSError as error:
            self._close(str(error))

    def receive(self) -> list[dict[str, Any]]:
        """The messages that have come."""
        found: list[dict[str, Any]] = []
        try:
            while not self.closed:
                came = self.connection.recv(65_536)
                if not came:
                    self._close("it closed the connection")
                    break
                self.heard = time.monotonic()
                *lines, self._in = (self._in + came).split(b"\n")
                found += [self._message(line) for line in lines]
                if len(self._in) > _MOST_HELD:
                    self._close("it sent what no launcher sends")
        except BlockingIOError:
            pass
        except (OSError, ValueError) as error:
            self._close(str(error))
        return found

    @staticmethod
    def _message(line: bytes) -> dict[str, Any]:
        message = json.loads(line)
        if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
            raise ValueError("it sent what no launcher sends")
        return message

    def silence(self) -> float:
        """Seconds since something came."""
        return time.monotonic() - self.heard

    def _close(self, why: str) -> None:
        self.closed = why or "it closed the connection"

    def close(self, linger: float = 1.0) -> None:
        """Send what is left, for a moment, and close."""
        end = time.monotonic() + linger
        while self._out and not self.closed and time.monotonic() < end:
            self.flush()
            time.sleep(0.01)
        self.connection.close()


class Listener:
    """Where node 0 hears of the others."""

    def __init__(
        self, master: Endpoint, named: float = 0.0, check: Callable[[], None] = lambda: None
    ) -> None:
        self.master = master
        family, address = _resolved(master, named, check)
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address[0] in _OWN_NAME and not master.host.startswith(("127.", "localhost", "::1")):
            # Many systems give their own name a loopback address, which others do not reach.
            address = ("", master.port)
        try:
            try:
                self._socket.bind(address)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise
                # An address that is translated on the way here (a service of a cluster).
                self._socket.bind(("", master.port))
        except OSError as error:
            self._socket.close()
            raise CommunicationError(
                f"ember launch cannot listen at --master {master}: {error.strerror or error}; "
                f"take another port, or end what uses this one"
            ) from error
        self._socket.listen(128)
        self._socket.setblocking(False)
        self._strangers: list[tuple[Peer, float]] = []

    def fileno(self) -> int:
        return self._socket.fileno()

    def arrivals(self) -> list[tuple[Peer, dict[str, Any]]]:
        """Launchers that have said hello."""
        try:
            while True:
                connection, _ = self._socket.accept()
                self._strangers.append((Peer(connection), time.monotonic()))
        except OSError:
            pass
        found: list[tuple[Peer, dict[str, Any]]] = []
        waiting: list[tuple[Peer, float]] = []
        for peer, since in self._strangers:
            messages = peer.receive()
            hello = messages[0] if messages else None
            if hello is not None and hello["kind"] == "hello":
                found.append((peer, hello))
            elif hello is not None or peer.closed or time.monotonic() - since > _HELLO_SECONDS:
                peer.close(0.0)
            else:
                waiting.append((peer, since))
        self._strangers = waiting
        return found

    def close(self) -> None:
        for peer, _ in self._strangers:
            peer.close(0.0)
        self._socket.close()


def _resolved(master: Endpoint, limit: float, check: Callable[[], None]) -> tuple[int, Any]:
    """The address of this machine; its name may become known to it later than it starts."""
    end = time.monotonic() + limit
    while True:
        try:
            return resolved(master)
        except DomainError:
            if time.monotonic() >= end:
                raise
        check()
        time.sleep(0.2)


def connect(master: Endpoint, limit: float, check: Callable[[], None]) -> Peer:
    """Reach the launcher of node 0, which may start later than this one."""
    end = time.monotonic() + limit
    why = ""
    while True:
        left = end - time.monotonic()
        if left <= 0:
            raise CommunicationError(
                f"ember launch found no launcher of node 0 at --master {master} within "
                f"{limit:g} s ({why}); start one with --node-rank 0 there, and see that the port "
                f"can be reached from here"
            )
        check()
        try:
            return Peer(
                socket.create_connection((master.host, master.port), timeout=min(left, 2.0))
            )
        except OSError as error:
            why = error.strerror or str(error)
        time.sleep(min(0.2, max(left, 0.0)))
