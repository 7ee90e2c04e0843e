"""The text that kube-proxy's nftables mode feeds to ``nft -f -``: a chain per Service and per endpoint, verdict maps between.

Written after the layout that kube-proxy 1.36 documents for this mode, as the peer to measure against.
"""

import hashlib
from collections.abc import Iterator, Sequence

from kproxy_core.model.objects import EndpointSlice, Service

TABLE = "kube-proxy"


def scaffold() -> Iterator[str]:
    """Yield the table, its maps and base chains."""
    yield f"add table ip {TABLE}"
    yield f"add map ip {TABLE} service-ips {{ type ipv4_addr . inet_proto . inet_service : verdict ; }}"
    yield f"add map ip {TABLE} service-nodeports {{ type inet_proto . inet_service : verdict ; }}"
    yield f"add set ip {TABLE} cluster-ips {{ type ipv4_addr ; }}"
    yield f"add set ip {TABLE} hairpin-connections {{ type ipv4_addr . ipv4_addr . inet_proto ; }}"
    yield f"add chain ip {TABLE} mark-for-masquerade"
    yield f"add rule ip {TABLE} mark-for-masquerade mark set mark or 0x4000"
    yield f"add chain ip {TABLE} services"
    yield f"add chain ip {TABLE} cluster-ips-check"
    for chain, hook, priority in (("nat-prerouting", "prerouting", -100), ("nat-output", "output", -100)):
        yield f"add chain ip {TABLE} {chain} {{ type nat hook {hook} priority {priority} ; }}"
        yield f"add rule ip {TABLE} {chain} jump services"
    yield f"add chain ip {TABLE} nat-postrouting {{ type nat hook postrouting priority 100 ; }}"
    yield f"add rule ip {TABLE} nat-postrouting ip saddr . ip daddr . meta l4proto @hairpin-connections masquerade"
    yield f"add rule ip {TABLE} nat-postrouting mark and 0x4000 != 0 mark set mark xor 0x4000 masquerade fully-random"
    for chain, hook in (("filter-forward", "forward"), ("filter-output", "output")):
        yield f"add chain ip {TABLE} {chain} {{ type filter hook {hook} priority -110 ; }}"
        yield f"add rule ip {TABLE} {chain} ct state new jump cluster-ips-check"
    yield f"add rule ip {TABLE} cluster-ips-check ip daddr @cluster-ips reject"
    yield f"add rule ip {TABLE} services ip daddr . meta l4proto . th dport vmap @service-ips"


def _service_chain(service: Service) -> str:
    text = f"{service.name}/tcp/http"
    return f"service-{hashlib.sha256(text.encode()).hexdigest()[:8].upper()}-{text.replace('-', '_')}"


def service_rules(service: Service, endpoints: EndpointSlice, pod_range: str) -> Iterator[str]:
    """Yield what one Service needs."""
    chain = _service_chain(service)
    port = service.ports[0].port
    address = service.cluster_ips[0]
    targets = []
    for endpoint in endpoints.endpoints:
        target = f"endpoint-{hashlib.sha256(endpoint.address).hexdigest()[:8].upper()}-{chain[17:]}__{endpoint.address}/8080"
        targets.append(target)
        yield f"add chain ip {TABLE} {target}"
        yield f"add rule ip {TABLE} {target} ip saddr {endpoint.address} jump mark-for-masquerade"
        yield f"add rule ip {TABLE} {target} meta l4proto tcp dnat to {endpoint.address}:8080"
    yield f"add chain ip {TABLE} {chain}"
    yield f"add rule ip {TABLE} {chain} ip daddr {address} tcp dport {port} ip saddr != {pod_range} jump mark-for-masquerade"
    picks = ", ".join(f"{number} : goto {target}" for number, target in enumerate(targets))
    yield f"add rule ip {TABLE} {chain} numgen random mod {len(targets)} vmap {{ {picks} }}"
    yield f"add element ip {TABLE} cluster-ips {{ {address} }}"
    yield f"add element ip {TABLE} service-ips {{ {address} . tcp . {port} : goto {chain} }}"


def full_load(pairs: Sequence[tuple[Service, EndpointSlice]], pod_range: str, batch: int) -> Iterator[str]:
    """Yield the texts of a first load, ``batch`` Services in each.

    In one text the kernel's time is quadratic in the anonymous maps of the transaction; batches of some hundred suit it best.
    """
    yield "\n".join(scaffold()) + "\n"
    for start in range(0, len(pairs), batch):
        lines = [rule for pair in pairs[start : start + batch] for rule in service_rules(*pair, pod_range)]
        yield "\n".join(lines) + "\n"


def one_change(service: Service, endpoints: EndpointSlice, pod_range: str) -> str:
    """Return the text of a change of one Service: its chain is flushed and filled again, the new endpoint's chain added."""
    lines = [f"add chain ip {TABLE} {_service_chain(service)}", f"flush chain ip {TABLE} {_service_chain(service)}"]
    rules = list(service_rules(service, endpoints, pod_range))
    # Chains of endpoints that are there already are flushed and filled with the same rules, as kube-proxy does.
    lines += [rule for rule in rules if not rule.startswith("add element")]
    return "\n".join(lines) + "\n"
