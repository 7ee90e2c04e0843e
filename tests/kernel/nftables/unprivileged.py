"""What runs inside a user namespace for test_faults.py: a thousand Services, programmed in parts, served, and found again."""

from attrs import evolve

from kproxy_core.kernel.netlink_socket import NetlinkSocket
from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.model.addresses import Address
from kproxy_core.model.names import ObjectName
from kproxy_core.testing.lab import Answer, Lab, Question, ask_all, in_user_namespace
from kproxy_core.testing.lab_cluster import LabCluster
from kproxy_core.testing.node import NodeUnderTest
from kproxy_nftables.backend import NftablesBackend

SERVICES = 1000
ROOM = 212_992
"""What a send buffer may have by default (net.core.wmem_default), for those who may not have more."""

reserve = NetlinkSocket.reserve
NetlinkSocket.reserve = lambda self, size: min(reserve(self, size), ROOM)  # type: ignore[method-assign]
assert in_user_namespace()
with Lab() as lab:
    for pod in lab.pods.values():
        lab.serve(pod, 8080)
    cluster = LabCluster(lab)
    pattern = cluster.service("web", 10, "t=80")
    slices = cluster.endpoints("web", "a1 a2 abr1 b1 b2", "t=8080")
    services, pieces = [], []
    for number in range(SERVICES):
        name = ObjectName("default", f"web-{number}")
        last = (number + 256).to_bytes(2, "big")
        ips = tuple(Address(address[:-2] + last) for address in pattern.cluster_ips)
        services.append(evolve(pattern, name=name, cluster_ips=ips))
        pieces += [
            evolve(piece, name=ObjectName("default", f"{name.name}-{piece.family.label}"), service=name) for piece in slices
        ]
    with lab.node.enter(), NftSocket() as nft:
        before = nft.generation()
    with NodeUnderTest(lab.node, NftablesBackend()) as node:
        report = node.set(*services, *pieces, cluster.node())
        assert report is not None
        assert report.ok, report
        with lab.node.enter(), NftSocket() as nft:
            print("transactions", nft.generation() - before)  # noqa: T201
        assert not node.difference()
        questions = [
            Question(host=host, address=address, port=80, timeout=15)
            for host in (lab.node, lab.pods["a2"], lab.pods["abr2"])
            for service in (services[0], services[500], services[-1])
            for address in service.cluster_ips
        ]
        outcomes = ask_all(questions)
        assert all(isinstance(outcome, Answer) for outcome in outcomes), outcomes
        # All of them change at once, in parts; then a new process finds nothing to do.
        fewer = [evolve(piece, endpoints=piece.endpoints[1:]) for piece in pieces]
        report = node.put(*fewer)
        assert report is not None
        assert report.ok, report
        assert not node.difference()
        report = node.restart()
        assert report is not None
        assert (report.ok, report.operations) == (True, 2 if node.backend.table_flags else 0), report
        outcomes = ask_all(questions)
        assert all(isinstance(outcome, Answer) and outcome.server != "a1" for outcome in outcomes), outcomes
