"""Reads the values of options and configuration fields; a ``ValueError`` says what is wrong and what to write."""

import re
from collections.abc import Iterable
from typing import Final

from kproxy_core.config.settings import NodePortScope
from kproxy_core.model.addresses import Address, Network, parse_address, parse_network

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_NUMBER = r"(?:\d+\.?\d*|\.\d+)"
_PART = re.compile(rf"({_NUMBER})(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_GO = re.compile(rf"(?:{_NUMBER}(?:ns|us|µs|μs|ms|s|m|h))+", re.ASCII)
_PLAIN = re.compile(_NUMBER, re.ASCII)


def parse_duration(text: str) -> float:
    """Return the seconds of a duration as Go spells it (``1h30m``, ``500ms``, ``1.5s``), or of a plain number of seconds."""
    stripped = text.strip()
    if _PLAIN.fullmatch(stripped):
        return float(stripped)
    if not _GO.fullmatch(stripped):
        raise ValueError(f"{text!r} is not a duration such as 500ms, 30s or 1h30m (0 or more)")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(stripped))


def split_list(texts: Iterable[str]) -> tuple[str, ...]:
    """Take lists apart that may be given in one text, with commas, or in several; blanks around an entry are dropped."""
    return tuple(entry.strip() for text in texts for entry in text.split(",") if entry.strip())


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Read address ranges, each once."""
    return tuple(dict.fromkeys(parse_network(entry) for entry in split_list(texts)))


def parse_addresses(texts: Iterable[str]) -> tuple[Address, ...]:
    """Read addresses, each once."""
    return tuple(dict.fromkeys(parse_address(entry) for entry in split_list(texts)))


def parse_bind_address(text: str) -> Address | None:
    """Read an address; the empty text is none."""
    return parse_address(text) if text.strip() else None


def parse_node_port_addresses(texts: Iterable[str]) -> NodePortScope | tuple[Network, ...] | None:
    """Read ``primary``, ``all`` or ranges; None when nothing is given, which leaves it to the mode."""
    entries = split_list(texts)
    words = {scope.value: scope for scope in NodePortScope}
    named = [entry for entry in entries if entry in words]
    if named and len(set(entries)) > 1:
        raise ValueError(f"{named[0]!r} has to stand alone, without {', '.join(e for e in entries if e != named[0])}")
    if named:
        return words[named[0]]
    return parse_networks(entries) or None


def parse_ports(texts: Iterable[str]) -> frozenset[int]:
    """Read port numbers."""
    ports = split_list(texts)
    wrong = [port for port in ports if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535)]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not a port from 1 to 65535")
    return frozenset(map(int, ports))


def split_host_port(text: str, default_port: int) -> tuple[Address, int]:
    """Read ``address:port``, ``[address]:port`` or an address alone, which gets the default port."""
    host, colon, port = text.rpartition(":")
    if text.startswith("[") and text.endswith("]"):
        host, port = text[1:-1], str(default_port)
    elif host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif not colon or ":" in host:
        host, port = text, str(default_port)
    (number,) = parse_ports([port]) or (0,)
    try:
        return parse_address(host), number
    except ValueError as error:
        raise ValueError(f"{error}; address:port is expected, such as 0.0.0.0:{default_port} or [::]:{default_port}") from None
