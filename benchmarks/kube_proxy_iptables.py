"""What kube-proxy's iptables mode feeds to ``iptables-restore``: a chain per Service and one per endpoint, found one by one.

Written after the layout that kube-proxy 1.36 documents for this mode, as the peer to measure against. In clusters of more than
1,000 endpoints it leaves comments out, and so does this.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence

from kproxy_core.model.objects import EndpointSlice, Service

Pair = tuple[Service, EndpointSlice]


def _hashed(prefix: str, text: str) -> str:
    return prefix + base64.b32encode(hashlib.sha256(text.encode()).digest())[:16].decode()


def _service_chain(service: Service) -> str:
    return _hashed("KUBE-SVC-", f"{service.name}:http")


def _dispatch(service: Service) -> str:
    address = service.cluster_ips[0]
    return f"-A KUBE-SERVICES -d {address}/32 -p tcp -m tcp --dport {service.ports[0].port} -j {_service_chain(service)}"


def _service(service: Service, endpoints: EndpointSlice, pod_range: str) -> tuple[list[str], list[str]]:
    """The chains of a Service, and their rules."""
    chain = _service_chain(service)
    address = service.cluster_ips[0]
    match = f"-d {address}/32 -p tcp -m tcp --dport {service.ports[0].port}"
    chains = [chain]
    rules = [f"-A {chain} {match} ! -s {pod_range} -j KUBE-MARK-MASQ"]
    left = len(endpoints.endpoints)
    for endpoint in endpoints.endpoints:
        target = _hashed("KUBE-SEP-", f"{service.name}:http {endpoint.address}")
        chance = f" -m statistic --mode random --probability {1 / left:.10f}" if left > 1 else ""
        chains.append(target)
        rules.append(f"-A {chain}{chance} -j {target}")
        rules.append(f"-A {target} -s {endpoint.address}/32 -j KUBE-MARK-MASQ")
        rules.append(f"-A {target} -p tcp -m tcp -j DNAT --to-destination {endpoint.address}:8080")
        left -= 1
    return chains, rules


def _text(chains: Sequence[str], rules: Sequence[str]) -> str:
    return "\n".join(["*nat", *(f":{chain} - [0:0]" for chain in chains), *rules, "COMMIT", ""])


def _scaffold() -> Iterator[str]:
    yield "-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000"
    yield "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN"
    yield "-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000"
    yield "-A KUBE-POSTROUTING -j MASQUERADE --random-fully"


def full_load(pairs: Sequence[Pair], pod_range: str) -> str:
    """Return the text of a first load."""
    chains = ["KUBE-SERVICES", "KUBE-MARK-MASQ", "KUBE-POSTROUTING"]
    rules = list(_scaffold())
    for pair in pairs:
        more_chains, more_rules = _service(*pair, pod_range)
        chains += more_chains
        rules += [*more_rules, _dispatch(pair[0])]
    hooks = [f"-A {built_in} -j KUBE-SERVICES" for built_in in ("PREROUTING", "OUTPUT")]
    return _text(chains, [*rules, *hooks, "-A POSTROUTING -j KUBE-POSTROUTING"])


def one_change(services: Sequence[Service], changed: Pair, pod_range: str) -> str:
    """Return the text of a partial sync: the chains of the changed Service, and the dispatch of all of them as always."""
    chains, rules = _service(*changed, pod_range)
    fixed = ["KUBE-SERVICES", "KUBE-MARK-MASQ", "KUBE-POSTROUTING"]
    return _text([*fixed, *chains], [*_scaffold(), *rules, *map(_dispatch, services)])
