"""The daemon by its configuration file against the fake API server and against kube-apiserver: the same comes of it.

Written to over HTTP alone, so that both are told the same. The real one is used where KUBEBUILDER_ASSETS names a folder with
etcd and kube-apiserver; either runs within the node's network namespace.
"""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from attrs import define

from kproxy_core.testing.fake_api import Cluster, FakeApi, User, write_kubeconfig
from kproxy_core.testing.lab import Lab, ServerPlan, can_build

from ..e2e_api.servers import TOKEN, FakeServer, RealServer, Server, apply, delete, real_assets
from .conftest import Running, wait_until
from .on_a_node import Object, OnANode, node, service, slices, steadily

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]


@define
class Served:
    """A node whose API server is told everything over HTTP, from within the node."""

    there: OnANode
    server: Server

    def apply(self, *objects: Object) -> None:
        """Create or change objects."""
        with self.there.lab.node.enter():
            for each in objects:
                apply(self.server, each)

    def delete(self, *objects: Object) -> None:
        """Delete objects."""
        with self.there.lab.node.enter():
            for each in objects:
                delete(self.server, each)


@pytest.fixture(params=["fake", "real"])
def served(request: pytest.FixtureRequest, tmp_path: Path, background: Callable[..., Running]) -> Iterator[Served]:
    if not can_build():
        pytest.skip("no privilege to make network namespaces (run as root or in a user namespace)")
    assets = real_assets()
    if request.param == "real" and assets is None:
        pytest.skip("no kube-apiserver and etcd (KUBEBUILDER_ASSETS names no folder with both)")
    with Lab() as lab:
        lab.route_services(lab.node)
        for host in lab.hosts.values():
            lab.serve(host, ServerPlan(ports=(8080,)))
        api = FakeApi()
        with lab.node.enter():
            if assets is not None and request.param == "real":
                real = RealServer(assets, tmp_path)
                running: RealServer | FakeApi = real.__enter__()
                server: Server = real
            else:
                running = api.start()
                server = FakeServer(api)
        try:
            there = OnANode(lab, api, tmp_path, background, count(10))
            cluster = Cluster(server=server.url, authority=server.authority)
            write_kubeconfig(tmp_path / "kubeconfig", cluster, User(token=TOKEN))
            yield Served(there, server)
        finally:
            with lab.node.enter():
                running.__exit__(None, None, None)


def single(name: str, address: str, **spec: object) -> Object:
    """A Service in IPv4 alone: the API server has ranges of its own in IPv6."""
    made = service(name, [address, ""], **spec)
    made["spec"] |= {"clusterIPs": [address], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}
    return made


def test_services_come_change_and_go_also_while_the_api_server_is_away(served: Served) -> None:
    there, lab = served.there, served.there.lab
    web, going, new = (str(lab.plan.cluster_ipv4[number]) for number in (100, 101, 102))
    external = str(lab.plan.external_ipv4[7])
    a1, b1 = slices("web", lab.pods["a1"])[0], slices("web", lab.pods["b1"])[0]
    served.apply(node(lab.node), single("web", web, externalIPs=[external]), a1)
    doomed = single("going", going), slices("going", lab.pods["a1"])[0]
    served.apply(*doomed)
    daemon = there.run()
    there.wait_for(lab.outside, web, {"a1"})
    there.wait_for(lab.outside, external, {"a1"})
    served.apply(b1)
    there.wait_for(lab.pods["a2"], web, {"b1"})
    assert there.health()[0] == 200

    generation = there.generation()
    with lab.node.enter():
        served.server.stop()
    wait_until(lambda: all(each["problem"] for each in there.health()[1]["watches"].values()), "the outage is noticed")
    assert steadily(lambda: there.generation() == generation, 1.5)
    assert there.who(lab.outside, web) == {"b1"}
    assert there.health()[0] == 200
    with lab.node.enter():
        served.server.start()
    served.apply(a1, single("new", new), slices("new", lab.pods["a2"])[0])
    served.delete(*doomed)
    there.wait_for(lab.outside, web, {"a1"})
    there.wait_for(lab.outside, new, {"a2"})
    wait_until(lambda: not there.is_answered(lab.outside, going), "what was deleted is gone")
    assert "Traceback" not in daemon.log
    assert daemon.stop() == 0
