"""Addresses: where node 0 is, and this machine as others see it."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import sys
from typing import Any, Final, NamedTuple

from ember_ml.errors import DomainError

__all__ = [
    "DEFAULT_PORT",
    "Endpoint",
    "Ports",
    "interface_of",
    "plain_address",
    "resolved",
]

DEFAULT_PORT: Final = 29400
_GET_ADDRESS: Final = 0xC0206921 if sys.platform == "darwin" else 0x8915  # SIOCGIFADDR


class Endpoint(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Of "host:port", "host", or "[::1]:port".

        >>> Endpoint.parse("node-0:4000")
        Endpoint(host='node-0', port=4000)
        """
        host, port = text.strip(), ""
        if host.startswith("["):
            host, _, rest = host[1:].partition("]")
            port = rest.removeprefix(":")
        elif host.count(":") == 1:
            host, _, port = host.partition(":")
        elif ":" in host and not _is_ipv6(host):
            host = ""
        is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65536
        if not host or any(one.isspace() or one == "/" for one in host) or (port and not is_port):
            raise DomainError(
                f"ember launch got --master {text!r}; it is the first node's host:port, as in "
                f"--master 10.0.0.1:{DEFAULT_PORT}"
            )
        return cls(host, int(port) if port else DEFAULT_PORT)


def _is_ipv6(text: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6, text)
    except OSError:
        return False
    return True


def resolved(where: Endpoint) -> tuple[int, Any]:
    """The family and the address of a host; by IPv4 where it has both, which all engines speak."""
    try:
        found = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise DomainError(
            f"ember launch: the host of --master {where} is not known here ({error})"
        ) from error
    family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    return family, address


def plain_address(text: str) -> str:
    """An address as engines take it: one of IPv4 that a socket of IPv6 has is one of IPv4.

    >>> plain_address("::ffff:10.0.0.1"), plain_address("fd00::1")
    ('10.0.0.1', 'fd00::1')
    """
    found = ipaddress.ip_address(text)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return text if mapped is None else str(mapped)


class Ports:
    """Ports of this machine, given by the system, for programs that are started after this.

    Until `close`, nobody else is given them: in Linux a socket that has a port, and does not
    listen, leaves it to those only who ask for it by its number and share it (SO_REUSEADDR), as
    all engines do. Other systems give it to nobody then, so there ports are only looked up.
    """

    def __init__(self, count: int) -> None:
        self._held = [socket.socket() for _ in range(count)]
        for one in self._held:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("", 0))
        self.numbers = [int(one.getsockname()[1]) for one in self._held]
        if sys.platform != "linux":
            self.close()

    def close(self) -> None:
        """Let others have them."""
        for one in self._held:
            one.close()
        self._held = []


def interface_of(address: str) -> str | None:
    """The name of the network interface that has an address; None where that is not known."""
    try:
        import fcntl
    except ImportError:
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            asked = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):  # it has no address of its own
                found = fcntl.ioctl(probe.fileno(), _GET_ADDRESS, asked)
                if socket.inet_ntoa(found[20:24]) == address:
                    return name
    return None
