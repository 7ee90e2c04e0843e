"""Faults in the nftables mode's own code that the kit must find: in what it compiles, in its rules, in its expressions."""

from kproxy_core.testing.conformance.planted.in_code import CodeFault
from kproxy_nftables import actions, scaffold
from kproxy_nftables import compile as compiler

FAULTS = (
    # What is rendered of a Service port.
    CodeFault(
        what="hairpins of local endpoints are not known",
        module=compiler,
        right="lambda endpoint: endpoint.local or endpoint.nodeless",
        wrong="lambda endpoint: endpoint.nodeless",
        shown_by=("hairpin",),
    ),
    CodeFault(
        what="a source range is its first address alone",
        module=compiler,
        right="prefix + network.address + prefix + network.last",
        wrong="prefix + network.address + prefix + network.address",
        shown_by=("source-ranges-change",),
    ),
    CodeFault(
        what="endpoints are never repeated",
        module=compiler,
        right="zip(packed, repetitions(weights), strict=True)",
        wrong="zip(packed, [1] * len(weights), strict=True)",
        shown_by=("weights",),
    ),
    CodeFault(
        what="traffic from outside is never told apart",
        module=compiler,
        right="if outcome.outside is not None:",
        wrong="if not outcome:",
        shown_by=("matrix-elsewhere",),
    ),
    CodeFault(
        what="other ports of external addresses are refused as well",
        module=compiler,
        right="if rule.frontend.kind is FrontendKind.CLUSTER_IP and not node_port:",
        wrong="if not node_port:",
        shown_by=("guarded-ports",),
    ),
    CodeFault(
        what="other ports of cluster addresses are let go",
        module=compiler,
        right="if rule.frontend.kind is FrontendKind.CLUSTER_IP and not node_port:",
        wrong="if node_port:",
        shown_by=("unused-ports",),
    ),
    CodeFault(
        what="local pods are never masqueraded",
        module=compiler,
        right="return Mark.ALWAYS",
        wrong="return Mark.UNLESS_LOCAL_POD",
        shown_by=("masquerade-all",),
    ),
    # The rules of an action.
    CodeFault(
        what="the first endpoint gets everything",
        module=actions,
        right="Numgen(dreg=R[7], modulus=pick.count),\n            Lookup(set_name=endpoints",
        wrong="Numgen(dreg=R[7], modulus=1),\n            Lookup(set_name=endpoints",
        shown_by=("spread",),
    ),
    CodeFault(
        what="TCP is refused by ICMP",
        module=actions,
        right="Rule(expressions=(*is_tcp, Reject(type=RejectType.TCP_RST))),",
        wrong="",
        shown_by=("matrix-none",),
    ),
    CodeFault(
        what="the code of an IPv6 refusal is that of IPv4",
        module=actions,
        right="icmp_code = ICMP_PORT_UNREACHABLE if family is Family.IPV4 else ICMPV6_PORT_UNREACHABLE",
        wrong="icmp_code = ICMP_PORT_UNREACHABLE",
        shown_by=("matrix-none",),
    ),
    CodeFault(
        what="local endpoints are looked up among all",
        module=actions,
        right="sets.ENDPOINTS if pick.scope is EndpointScope.CLUSTER else sets.LOCAL_ENDPOINTS",
        wrong="sets.ENDPOINTS",
        shown_by=("matrix-draining",),
    ),
    CodeFault(
        what="source ranges are turned around",
        module=actions,
        right="Lookup(set_name=sets.SOURCE_RANGES, sreg=R[0], flags=1),",
        wrong="Lookup(set_name=sets.SOURCE_RANGES, sreg=R[0], flags=0),",
        shown_by=("source-ranges",),
    ),
    CodeFault(
        what="an endpoint's port is read from another register",
        module=actions,
        right="port=R[register + words(family)]",
        wrong="port=R[register + 1]",
        shown_by=("matrix-ready",),
    ),
    CodeFault(
        what="clients are never remembered",
        module=actions,
        right="(_remember(pick, DynsetOp.DELETE), _remember(pick, DynsetOp.ADD)) if remember else ()",
        wrong="()",
        shown_by=("affinity",),
    ),
    CodeFault(
        what="clients are forgotten a hundred times too soon",
        module=actions,
        right="else pick.timeout * 1000",
        wrong="else pick.timeout * 10",
        shown_by=("affinity-timeout",),
    ),
    CodeFault(
        what="a remembered client is sent to an endpoint that is gone",
        module=actions,
        right="            *_sticky_endpoint(endpoints, R[5]),\n            _remember(pick, DynsetOp.UPDATE),\n",
        wrong="            Lookup(set_name=endpoints, sreg=R[0], dreg=R[8]),\n",
        shown_by=("affinity",),
    ),
    # The rules that are there once.
    CodeFault(
        what="what is for the outside is not asked for",
        module=scaffold,
        right="_dispatch(sets.OUTSIDE_ACTIONS, sets.DISPATCH, frontend_key(family), outside),",
        wrong="",
        shown_by=("matrix-elsewhere",),
    ),
    CodeFault(
        what="what is for the outside is not asked for at NodePorts",
        module=scaffold,
        right="_dispatch(sets.OUTSIDE_NODE_PORT_ACTIONS, sets.NODE_PORT_DISPATCH, node_port_key(), outside),",
        wrong="",
        shown_by=("matrix-elsewhere",),
    ),
    CodeFault(
        what="the node's own traffic is not looked at",
        module=scaffold,
        right="hook=Hook(number=HookNumber.OUTPUT, priority=_DSTNAT),",
        wrong="hook=None,",
        shown_by=("matrix-none",),
    ),
    CodeFault(
        what="hairpins are not masqueraded",
        module=scaffold,
        right="rules=(_hairpin(family, node.masquerade_bit), _masquerade(node.masquerade_bit)),",
        wrong="rules=(_masquerade(node.masquerade_bit),),",
        shown_by=("hairpin",),
    ),
    CodeFault(
        what="what is marked is not masqueraded",
        module=scaffold,
        right="rules=(_hairpin(family, node.masquerade_bit), _masquerade(node.masquerade_bit)),",
        wrong="rules=(_hairpin(family, node.masquerade_bit),),",
        shown_by=("matrix-ready",),
    ),
    CodeFault(
        what="unallocated addresses are dropped over IPv4 alone",
        module=scaffold,
        right="if cidr.family is family",
        wrong="if cidr.family is family is Family.IPV4",
        shown_by=("unallocated-addresses",),
    ),
    CodeFault(
        what="NodePorts answer on loopback",
        module=scaffold,
        right="*compare_network(_LOOPBACK[family], CompareOp.NEQ),",
        wrong="",
        shown_by=("every-address-but-loopback",),
    ),
)
