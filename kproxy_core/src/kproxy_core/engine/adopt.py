"""Adopts what was read from the kernel, so that wanted fragments can replace read ones one by one.

A read program need not say which shared objects a fragment uses. Objects that nobody is known to use are kept by a pseudo
Service port of their own, until every fragment is one we made ourselves: only then are they known to be rubbish.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final

from attrs import evolve

from kproxy_core.model.addresses import Family
from kproxy_core.model.names import Protocol, ServicePortKey, ServicePortName
from kproxy_core.program.program import Fragment, Program

AnyFragment = Fragment[Any, Any]
AnyProgram = Program[Any, Any]

UNATTRIBUTED: Final = ServicePortKey(Family.IPV4, ServicePortName("", "(objects without a Service)", "", Protocol.TCP))
"""Whose fragment holds the shared objects of a read program that may or may not still be in use."""


def adopt(
    observed: AnyProgram,
    made: Mapping[ServicePortKey, AnyFragment],
    scaffold: Mapping[Any, Any],
    needs: Mapping[ServicePortKey, Collection[Any]] | None = None,
) -> AnyProgram:
    """Turn a read program into one that ``replace`` works on and that still says what the kernel holds.

    ``made`` are the fragments we compiled; one that the kernel holds unchanged takes the place of its read twin. ``scaffold``
    is what is wanted of it: everything else in ``observed.common`` is shared by Service ports, or rubbish. ``needs`` are shared
    keys that a Service port in between two fragments may use.
    """
    needs = needs or {}
    fragments = {port: _recognised(port, fragment, made, observed) for port, fragment in observed.fragments.items()}
    all_known = all(port in needs or fragment is made.get(port) for port, fragment in fragments.items())
    fragments = {port: _needing(fragment, needs.get(port, ()), observed) for port, fragment in fragments.items()}
    fragments = {port: _without(fragment, scaffold) for port, fragment in fragments.items()}
    uses = Counter(key for fragment in fragments.values() for key in fragment.shared)
    loose = {key: value for key, value in observed.common.items() if key not in scaffold and not (all_known and key in uses)}
    if loose:
        fragments[UNATTRIBUTED] = Fragment(shared=loose)
        uses.update(loose.keys())
    common = {key: value for fragment in fragments.values() for key, value in fragment.shared.items()}
    return Program(fragments=fragments, common=common | dict(observed.common), uses=dict(uses))


def is_unchanged(observed: AnyProgram, made: AnyProgram) -> bool:
    """Whether a read program is just what we made. Compares by Service port, which is several times cheaper than a whole diff."""
    ours = {port: fragment for port, fragment in made.fragments.items() if port != UNATTRIBUTED}
    return (
        observed.common == made.common
        and observed.fragments.keys() == ours.keys()
        and all(observed.fragments[port].own == fragment.own for port, fragment in ours.items())
    )


def _recognised(
    port: ServicePortKey, read: AnyFragment, made: Mapping[ServicePortKey, AnyFragment], observed: AnyProgram
) -> AnyFragment:
    ours = made.get(port)
    if ours is None or ours.id != read.id or ours.own != read.own:
        return read
    missing = object()
    whole = all(observed.common.get(key, missing) == value for key, value in ours.shared.items())
    return ours if whole else read


def _needing(fragment: AnyFragment, keys: Collection[Any], observed: AnyProgram) -> AnyFragment:
    if not keys:
        return fragment
    shared = {key: observed.common[key] for key in keys if key in observed.common}
    return evolve(fragment, shared={**fragment.shared, **shared})


def _without(fragment: AnyFragment, scaffold: Mapping[Any, Any]) -> AnyFragment:
    """Take away what an earlier version of a mode shared and what belongs to the scaffold now."""
    if fragment.shared.keys().isdisjoint(scaffold):
        return fragment
    return evolve(fragment, shared={key: value for key, value in fragment.shared.items() if key not in scaffold})
