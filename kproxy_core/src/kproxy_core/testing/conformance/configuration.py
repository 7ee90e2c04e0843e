"""The configuration that a scenario's settings stand for: a KubeProxyConfiguration for whatever mode is tested."""

from collections.abc import Mapping
from typing import Any

import attrs
import yaml

from kproxy_core.config.kubeproxy import API_VERSION, KIND, Iptables, Ipvs, Nftables
from kproxy_core.config.load import load, settings_from
from kproxy_core.config.positions import Problem
from kproxy_core.config.settings import Settings
from kproxy_core.testing.conformance.notation import expanded
from kproxy_core.testing.conformance.places import Places
from kproxy_core.testing.lab.plan import NODES

MODE_SECTION = "modeSection"
_SECTIONS: Mapping[str, type[Any]] = {"nftables": Nftables, "ipvs": Ipvs}


def document(settings: Mapping[str, Any], mode: str, places: Places) -> dict[str, Any]:
    """The document for a mode. Raises ``ValueError`` for a placeholder or a field of ``modeSection`` that there is not.

    Fields of ``modeSection`` that the mode's own section has not go to that of iptables, as kube-proxy has it.
    """
    made: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "mode": mode,
        "hostnameOverride": NODES[0],
        "clusterCIDR": "{pods ipv4},{pods ipv6}",
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
    made |= {name: value for name, value in settings.items() if name != MODE_SECTION}
    own = {"minSyncPeriod": "0s", **(settings.get(MODE_SECTION) or {})}
    for name, value in own.items():
        section = mode if name in _keys(_SECTIONS.get(mode, Iptables)) and mode in _SECTIONS else "iptables"
        if name not in _keys(_SECTIONS.get(section, Iptables)):
            raise ValueError(f"{MODE_SECTION}.{name}: no section of a mode has such a field")
        made[section] = {**made.get(section, {}), name: value}
    return expanded(made, places)


def _keys(shape: type[Any]) -> set[str]:
    return {attribute.metadata["key"] for attribute in attrs.fields(shape)}


def problems_of(made: Mapping[str, Any]) -> tuple[Problem, ...]:
    """What is wrong with a document; its lines are nobody's."""
    return tuple(problem for problem in load(yaml.safe_dump(dict(made))).problems if problem.fatal) if made else ()


def settings_of(made: Mapping[str, Any]) -> Settings:
    """The settings of a document. Raises ``ValueError`` when it is not a good one."""
    loaded = load(yaml.safe_dump(dict(made)))
    fatal = [problem.text for problem in loaded.problems if problem.fatal]
    if fatal:
        raise ValueError("; ".join(fatal))
    return settings_from(loaded.configuration, NODES[0])
