"""Divides a refused batch of Service ports, so that a culprit among n is alone after about 2 log2 n trials."""

from collections.abc import Iterable, Mapping
from typing import Any

from kproxy_core.model.names import ServicePortKey
from kproxy_core.plugin.backend import Failure
from kproxy_core.program.program import Fragment

AnyFragment = Fragment[Any, Any]
Fragments = Mapping[ServicePortKey, AnyFragment]
Updates = Mapping[ServicePortKey, AnyFragment | None]
Batch = tuple[ServicePortKey, ...]


def divide(batch: Batch, before: Fragments, updates: Updates) -> tuple[Batch, ...]:
    """Divide a batch into two of about the same size, or into none if it is a single Service port.

    Service ports between which a key moves stay together, as long as there is anything else to divide: the key then changes hands
    in one step and its frontend is served without a gap.
    """
    if len(batch) < 2:
        return ()
    groups = linked_groups(batch, before, updates)
    if len(groups) == 1:
        groups = tuple((port,) for port in batch)
    first: list[ServicePortKey] = []
    second: list[ServicePortKey] = []
    for group in sorted(groups, key=len, reverse=True):
        smaller = first if len(first) <= len(second) else second
        smaller.extend(group)
    return (tuple(first), tuple(second))


def linked_groups(batch: Batch, before: Fragments, updates: Updates) -> tuple[Batch, ...]:
    """Group the Service ports of a batch between which a key moves from one's old fragment to another's new one."""
    leaders = {port: port for port in batch}

    def leader(port: ServicePortKey) -> ServicePortKey:
        while leaders[port] != port:
            leaders[port] = leaders[leaders[port]]
            port = leaders[port]
        return port

    takers = {key: port for port in batch for key in _own(updates.get(port))}
    for port in batch:
        for key in _own(before.get(port)):
            taker = takers.get(key)
            if taker is not None:
                leaders[leader(port)] = leader(taker)
    groups: dict[ServicePortKey, list[ServicePortKey]] = {}
    for port in batch:
        groups.setdefault(leader(port), []).append(port)
    return tuple(tuple(group) for group in groups.values())


def culprits_of(failures: Iterable[Failure], batch: Batch, before: Fragments, updates: Updates) -> dict[ServicePortKey, str]:
    """Tell whose the refused keys are, and why each was refused.

    A key belongs to the Service port of the batch that wants it, else to the one that wants to be rid of it. Shared keys are
    nobody's: their culprit is found by halves.
    """
    refused = [(key, failure.message) for failure in failures for key in failure.keys]
    if not refused:
        return {}
    owners = {key: port for port in batch for key in _own(before.get(port))}
    owners.update({key: port for port in batch for key in _own(updates.get(port))})
    return {owners[key]: message for key, message in reversed(refused) if key in owners}


def _own(fragment: AnyFragment | None) -> Mapping[Any, Any]:
    return fragment.own if fragment is not None else {}
