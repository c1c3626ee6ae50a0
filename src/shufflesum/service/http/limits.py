"""How much one address may ask for at a time: connections, and uploads a minute.

Addresses are kept in memory only: as long as they are connected, and until the first upload that comes a minute after
their last one.
"""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass

from starlette.types import Scope

from shufflesum._clock import SYSTEM_CLOCK, Clock
from shufflesum.errors import ParameterError
from shufflesum.service.http.addresses import is_loopback
from shufflesum.service.http.problems import Refusal

__all__ = ["AddressLimits", "Limits"]

_MINUTE = 60.0
_MOST_ADDRESSES = 1 << 16
_NETWORK_BITS = 64  # of an IPv6 address: who has one has all that begin alike


@dataclass(frozen=True, slots=True)
class Limits:
    """What one address may have: open connections, and uploads a minute; 0 sets no limit.

    Behind a proxy `address_header` names the header in which it writes the client's address; its last entry counts.
    """

    connections: int = 0
    uploads: int = 0
    address_header: str | None = None

    def __post_init__(self) -> None:
        """Refuse limits below nothing."""
        for option, value in (("connections", self.connections), ("uploads", self.uploads)):
            if value < 0:
                raise ParameterError(
                    "out-of-range", f"--{option}-per-address is {value}; give a number, or 0 for no limit"
                )


class AddressLimits:
    """Keeps to limits. This machine's own connections have none: they are a proxy's, or tests'."""

    def __init__(self, limits: Limits, clock: Clock = SYSTEM_CLOCK) -> None:
        self._limits = limits
        self._clock = clock
        self._header = None if limits.address_header is None else limits.address_header.lower().encode("latin-1")
        self._open: dict[str, int] = {}
        self._left: dict[str, tuple[float, float]] = {}  # uploads an address has left, and since when

    def connect(self, address: str) -> bool:
        """Whether an address may have one connection more; if so, it has, until `disconnect`."""
        network = _network(address)
        most = 0 if self._header is not None or is_loopback(address) else self._limits.connections
        if most and self._open.get(network, 0) >= most:
            return False
        self._open[network] = self._open.get(network, 0) + 1
        return True

    def disconnect(self, address: str) -> None:
        """A connection that was allowed has ended."""
        network = _network(address)
        self._open[network] -= 1
        if not self._open[network]:
            del self._open[network]

    def check_upload(self, scope: Scope) -> None:
        """Refuse an upload, for a moment, to an address that sends too many."""
        address = scope["client"][0] if scope.get("client") else ""
        if self._header is not None:
            named = [value.decode("latin-1") for name, value in scope["headers"] if name == self._header]
            address = named[-1].rpartition(",")[2].strip() if named else address
        if not self._limits.uploads or (self._header is None and is_loopback(address)):
            return
        network, now, rate = _network(address), self._clock.monotonic(), self._limits.uploads / _MINUTE
        left, since = self._left.pop(network, (float(self._limits.uploads), now))
        left = min(left + (now - since) * rate, float(self._limits.uploads))
        self._forget(now)
        self._left[network] = (max(left - 1, 0.0) if left >= 1 else left, now)
        if left < 1:
            raise Refusal(
                "address-limit",
                f"more than {self._limits.uploads} uploads a minute from one address (--uploads-per-address); send the "
                "same upload again in a moment",
                headers={"Retry-After": str(math.ceil((1 - left) / rate))},
            )

    def _forget(self, now: float) -> None:
        """Forget addresses that have been silent for a minute, and in a flood of addresses the most silent ones."""
        while self._left:
            first = next(iter(self._left))
            if now - self._left[first][1] < _MINUTE and len(self._left) < _MOST_ADDRESSES:
                return
            del self._left[first]


def _network(address: str) -> str:
    """What counts as one address; whatever is none counts as one together."""
    try:
        found = ipaddress.ip_address(_without_port(address))
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), _NETWORK_BITS), strict=False))


def _without_port(address: str) -> str:
    """Some proxies write 192.0.2.1:4711 or [2001:db8::1]:4711."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address
