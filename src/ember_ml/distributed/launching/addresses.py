"""Addresses: where node 0 is, and this machine as others see it."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from typing import Final, NamedTuple

from ember_ml.errors import DomainError

__all__ = ["DEFAULT_PORT", "Endpoint", "interface_of", "own_address"]

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


def own_address(towards: Endpoint) -> str:
    """The address of this machine by which it is seen from another."""
    kind, _, _, _, address = socket.getaddrinfo(towards.host, towards.port, type=socket.SOCK_DGRAM)[
        0
    ]
    with socket.socket(kind, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # nothing is sent: the system only chooses the way
        return str(probe.getsockname()[0])


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
