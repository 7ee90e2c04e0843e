"""Divides a Service port between a mode and the companions beneath it: each gets the rules that it has to render."""

from collections.abc import Sequence

from attrs import evolve, frozen

from kproxy_core.model.state import FrontendRule, Origin, ServicePort
from kproxy_core.plugin.backend import AnyBackend


@frozen(kw_only=True)
class Division:
    """Who renders what of a Service port.

    ``shares`` are the rules of each mode, in the order of the modes and each in the order of the Service port. ``left`` is what
    nobody claims.
    """

    shares: tuple[tuple[FrontendRule, ...], ...]
    left: tuple[tuple[FrontendRule, Origin], ...] = ()


def divide(port: ServicePort, modes: Sequence[AnyBackend]) -> Division:
    """Ask the modes, from the uppermost down, what they claim of a Service port; each is asked for what is left by those above.

    A mode gets the whole of a rule of which it claims any origin. That part of it is claimed by others, too, does no harm: what
    a mode above serves does not come to the objects of those beneath it, and one above lets pass what it does not claim.
    """
    shares: list[list[FrontendRule]] = [[] for _ in modes]
    left: list[tuple[FrontendRule, Origin]] = []
    for rule in port.rules:
        open_origins = list(Origin)
        for mode, share in zip(modes, shares, strict=True):
            remaining = [origin for origin in open_origins if not mode.claims(port, rule, origin)]
            if len(remaining) < len(open_origins):
                share.append(rule)
            open_origins = remaining
            if not open_origins:
                break
        left += [(rule, origin) for origin in open_origins]
    return Division(shares=tuple(map(tuple, shares)), left=tuple(left))


def with_rules(port: ServicePort, rules: tuple[FrontendRule, ...]) -> ServicePort:
    """Return a Service port with some of its rules; the same object when these are all."""
    return port if len(rules) == len(port.rules) else evolve(port, rules=rules)
