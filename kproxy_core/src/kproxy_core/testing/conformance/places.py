"""Where everything is in a lab with the usual plan, without building it: hosts, addresses of Services, placeholders in texts."""

import re
from collections.abc import Iterator, Mapping

from kproxy_core.model.addresses import Family
from kproxy_core.testing.conformance.scenario import NODE_PORT, SERVICE_PORT, Target
from kproxy_core.testing.lab.plan import NODES, OUTSIDE, AddressPair, LabPlan

MOST_SERVICES = 250
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
LOOPBACK = AddressPair(ipv4="127.0.0.1", ipv6="::1")

PLACEHOLDERS = (
    "{HOST ipv4}: a host's address",
    "{outside N ipv4}: one of the outside client's addresses, from 0",
    "{cluster N ipv4}, {external N ipv4}, {balancer N ipv4}: an address of the Service with number N",
    "{nodePort N}: its NodePort",
    "{bridge ipv4}: the address of the node's bridge",
    "{pods ipv4}: the range of all pods; {pods HOST ipv4}: that of one node",
    "{services ipv4}: the range of cluster addresses",
)
"""What may stand in braces, ``ipv6`` likewise."""


def either(pair: AddressPair, family: Family) -> str:
    """The address of a family."""
    return pair.ipv6 if family is Family.IPV6 else pair.ipv4


class Places:
    """Names and addresses of a plan's lab. Texts that name what is not there raise ``ValueError`` saying what is."""

    def __init__(self, plan: LabPlan | None = None) -> None:
        self.plan = plan or LabPlan()
        self.hosts: Mapping[str, AddressPair] = dict(self._hosts())
        self.on: Mapping[str, str] = {pod.name: pod.on for pod in self.plan.pods} | {node: node for node in NODES}
        """The node that each host is on, or is; the outside client is on none."""
        self.bridged = frozenset(pod.name for pod in self.plan.pods if pod.bridged)

    def _hosts(self) -> Iterator[tuple[str, AddressPair]]:
        taken: dict[str, set[int]] = {node: set() for node in NODES}
        for pod in self.plan.pods:
            offset = self.plan.free_offset(pod, frozenset(taken[pod.on]))
            taken[pod.on].add(offset)
            yield pod.name, self.plan.pod_addresses(pod.on, offset)
        for node in NODES:
            yield node, self.plan.node_addresses(node)
        yield OUTSIDE, self.plan.client_addresses(0)

    def host(self, name: str) -> AddressPair:
        """A host's addresses."""
        if name not in self.hosts:
            raise ValueError(f"no host {name!r} (there are: {', '.join(sorted(self.hosts))})")
        return self.hosts[name]

    def frontend(self, kind: str, number: int) -> AddressPair:
        """The addresses of the Service with a number, of one kind; of kind nodePort those of the node, of loopback loopback's."""
        if not 1 <= number <= MOST_SERVICES:
            raise ValueError(f"{kind} {number}: the number of a Service is from 1 to {MOST_SERVICES}")
        plan = self.plan
        ranges = {
            "cluster": (plan.cluster_ipv4, plan.cluster_ipv6),
            "external": (plan.external_ipv4, plan.external_ipv6),
            "balancer": (plan.load_balancer_ipv4, plan.load_balancer_ipv6),
        }
        if kind in ranges:
            ipv4, ipv6 = ranges[kind]
            return AddressPair(ipv4=str(ipv4[number]), ipv6=str(ipv6[number]))
        return {"nodePort": self.hosts[NODES[0]], "loopback": LOOPBACK}[kind]

    def address(self, target: Target, family: Family) -> str:
        """A target's address in a family; empty when it has none."""
        if target.kind == "host":
            return either(self.host(target.what), family)
        if target.kind == "address":
            written = self.expand(target.what)
            return written if (":" in written) == (family is Family.IPV6) else ""
        return either(self.frontend(target.kind, _number(target.what)), family)

    def port(self, target: Target, written: str = "") -> int:
        """The port of a target, or the one that is written."""
        if written:
            return _number(self.expand(written))
        if target.kind in ("nodePort", "loopback"):
            return NODE_PORT + _number(target.what)
        return 8080 if target.kind in ("host", "address") else SERVICE_PORT

    def owners(self) -> Mapping[str, str]:
        """Hosts by address: their own, and those of the outside client and of the node's bridge."""
        found = {address: name for name, pair in self.hosts.items() for address in (pair.ipv4, pair.ipv6)}
        for number in range(self.plan.outside_addresses):
            pair = self.plan.client_addresses(number)
            found |= {pair.ipv4: OUTSIDE, pair.ipv6: OUTSIDE}
        for pair in (self.plan.bridge_gateway(NODES[0])[0], LOOPBACK):
            found |= {pair.ipv4: NODES[0], pair.ipv6: NODES[0]}
        return found

    def expand(self, text: str) -> str:
        """A text with what stands in braces replaced, see :data:`PLACEHOLDERS`."""
        return _PLACEHOLDER.sub(lambda match: self._named(match.group(1)), text)

    def _named(self, text: str) -> str:
        *words, family = text.split() or [""]
        if words == ["nodePort"]:
            return str(NODE_PORT + _number(family))
        if not words or family not in ("ipv4", "ipv6"):
            raise ValueError(f"{{{text}}}: write a name, and ipv4 or ipv6 at the end; placeholders: {'; '.join(PLACEHOLDERS)}")
        chosen = Family.IPV6 if family == "ipv6" else Family.IPV4
        if words[0] == "pods" or words == ["services"]:
            return self._range(words, chosen)
        return either(self._pair(words), chosen)

    def _range(self, words: list[str], family: Family) -> str:
        plan = self.plan
        ranges = {"services": (plan.cluster_ipv4, plan.cluster_ipv6), "pods": (plan.pods_ipv4, plan.pods_ipv6)}
        if len(words) == 2:
            if words[1] not in NODES:
                raise ValueError(f"{{pods {words[1]} ...}}: one of {', '.join(NODES)} has a range of pods")
            ranges["pods"] = plan.pod_ranges(words[1])
        return str(ranges[words[0]][family is Family.IPV6])

    def _pair(self, words: list[str]) -> AddressPair:
        match words:
            case ["bridge"]:
                return self.plan.bridge_gateway(NODES[0])[0]
            case ["outside", number]:
                return self.plan.client_addresses(_number(number))
            case [("cluster" | "external" | "balancer") as kind, number]:
                return self.frontend(kind, _number(number))
            case [name]:
                return self.host(name)
        raise ValueError(f"{{{' '.join(words)} ...}} is nothing that a lab has; placeholders: {'; '.join(PLACEHOLDERS)}")


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no number")
    return int(text)
