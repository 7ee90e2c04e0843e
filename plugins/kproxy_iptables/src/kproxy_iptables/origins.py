"""Rules that tell where traffic comes from, and that mark it for masquerading."""

from typing import Final

from kproxy_core.model.addresses import Family
from kproxy_core.model.state import LocalByInterface, LocalByNetwork, LocalDetector

FROM_NODE: Final = "-m addrtype --src-type LOCAL"
"""Matches what a process of this node sends, as kube-proxy tells it: by its source address."""
MARK_OTHERS: Final = "KPROXY-MARK-OTHERS"
"""The chain that marks what no local pod sends, where it takes more than one match to tell."""


def local_pod_matches(family: Family, detector: LocalDetector) -> tuple[str, ...]:
    """Matches of which one at least matches what a local pod sends; none where local pods cannot be told."""
    match detector:
        case LocalByNetwork(networks):
            return tuple(f"-s {network}" if network.length else "" for network in networks if network.family is family)
        case LocalByInterface(name, prefix):
            return (f"-i {name}{'+' if prefix else ''}",)
        case None:
            return ()


def mark(bit: int) -> str:
    """Mark for masquerading."""
    return f"-j MARK --set-xmark {1 << bit:#x}/{1 << bit:#x}"


def unmark(bit: int) -> str:
    """Take the mark off."""
    return f"-j MARK --set-xmark 0x0/{1 << bit:#x}"


def joined(*words: str) -> str:
    """Words of a rule, empty ones left out."""
    return " ".join(word for word in words if word)
