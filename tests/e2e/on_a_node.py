"""A cluster's node for tests: a lab, an API server within the node's network namespace, and kproxy as a process of its own."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from attrs import define

from kproxy_core.kernel import writer_lock
from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.model.names import Protocol
from kproxy_core.testing.fake_api import Authority, Cluster, FakeApi, User, write_kubeconfig
from kproxy_core.testing.lab import DROP_TIMEOUT, Answer, Host, Lab, Outcome, Question, ServerPlan, ask_all

from ..programs import program
from .conftest import Running, wait_until

NODE_NAME = "node"
SURE = 15.0
"""Seconds within which an outcome is certain to come."""
HEALTHZ, METRICS = 10256, 10249

Object = dict[str, Any]


def service(name: str, cluster: list[str], **spec: Any) -> Object:
    """A dual-stack Service on port 80 in TCP and UDP."""
    ports = [{"name": protocol.lower(), "port": 80, "protocol": protocol} for protocol in ("TCP", "UDP")]
    dual = {"clusterIP": cluster[0], "clusterIPs": cluster, "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}
    status = {"status": spec.pop("status")} if "status" in spec else {}
    metadata = {"name": name, "namespace": "default"}
    return {"kind": "Service", "apiVersion": "v1", "metadata": metadata, "spec": {"ports": ports, **dual, **spec}, **status}


def slices(name: str, *hosts: Host) -> list[Object]:
    """The EndpointSlices of a Service, one for each family."""
    return [_slice(name, hosts, ipv6=ipv6) for ipv6 in (False, True)]


def _slice(name: str, hosts: tuple[Host, ...], *, ipv6: bool) -> Object:
    family = "IPv6" if ipv6 else "IPv4"
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": f"{name}-{family.lower()}",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": family,
        "endpoints": [
            {
                "addresses": [host.address(ipv6)],
                "conditions": {"ready": True},
                "nodeName": host.pod.on if host.pod else host.name,
                "zone": "east",
            }
            for host in hosts
        ],
        "ports": [{"name": protocol.lower(), "port": 8080, "protocol": protocol} for protocol in ("TCP", "UDP")],
    }


def node(host: Host, **more: Any) -> Object:
    """The Node object of a host of the lab."""
    status = {"addresses": [{"type": "InternalIP", "address": address} for address in (host.ipv4, host.ipv6)]}
    metadata = {"name": host.name, "labels": {"topology.kubernetes.io/zone": "east"}, **more.pop("metadata", {})}
    return {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": more, "status": status}


@define
class OnANode:
    """A node under test."""

    lab: Lab
    api: FakeApi
    folder: Path
    background: Callable[..., Running]
    cluster_numbers: Iterator[int]

    # -- the cluster

    def cluster(self) -> list[str]:
        """Fresh cluster addresses."""
        number = next(self.cluster_numbers)
        return [str(self.lab.plan.cluster_ipv4[number]), str(self.lab.plan.cluster_ipv6[number])]

    def serve(self, name: str, *hosts: Host, **spec: Any) -> list[str]:
        """Make a Service with endpoints; return its cluster addresses."""
        cluster = self.cluster()
        self.api.apply_all([service(name, cluster, **spec), *slices(name, *hosts)])
        return cluster

    def kubeconfig(self, user: User | None = None, *, authority: Authority | None = None, name: str = "kubeconfig") -> Path:
        """Write a kubeconfig for the API server."""
        trusted = authority or self.api.server_authority
        cluster = Cluster(server=self.api.url, authority=trusted.pem)
        return write_kubeconfig(self.folder / name, cluster, user or User(token="secret"))

    # -- kproxy

    def configuration(self, **fields: Any) -> Path:
        """Write a configuration file like kubeadm's, for mode nftables."""
        document: dict[str, Any] = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "hostnameOverride": NODE_NAME,
            "clusterCIDR": f"{self.lab.plan.pods_ipv4},{self.lab.plan.pods_ipv6}",
            "clientConnection": {"kubeconfig": str(self.folder / "kubeconfig"), "qps": 0, "burst": 0},
            "nftables": {"minSyncPeriod": "0s", "syncPeriod": "0s", "masqueradeBit": None},
            "conntrack": {"maxPerCore": 0},
            "oomScoreAdj": 0,
        }
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump({name: value for name, value in (document | fields).items() if value is not None}))
        return path

    def start(self, *more: str, argv: list[str] | None = None, **fields: Any) -> Running:
        """Start kproxy, with fields of its configuration file."""
        path = str(self.configuration(**fields))
        arguments = ["run", "--config", path, "--netns", self.lab.node.namespace.path, *more]
        return self.background(*arguments, argv=argv) if argv else self.background(*arguments)

    def run(self, *more: str, **fields: Any) -> Running:
        """Start kproxy and wait until it has synced."""
        running = self.start(*more, **fields)
        running.says("first sync: ")
        return running

    def status(self) -> dict[str, Any]:
        """What the daemon tells of itself."""
        return dict(writer_lock.ask({"ask": "status"}, namespace=self.lab.node.namespace.descriptor))

    def get(self, path: str, port: int = HEALTHZ, address: str = "127.0.0.1", host: Host | None = None) -> tuple[int, bytes]:
        """Ask the daemon over HTTP, from the node or another host."""
        import http.client

        with (host or self.lab.node).enter():
            connection = http.client.HTTPConnection(address, port, timeout=SURE)
            connection.connect()
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def health(self, path: str = "/healthz") -> tuple[int, Any]:
        """Ask for /healthz or /livez."""
        code, body = self.get(path)
        return code, json.loads(body)

    # -- the kernel

    def generation(self) -> int:
        """The number of transactions that anybody has ever made in the node's nf_tables, modulo 2^32."""
        with NftSocket(namespace=self.lab.node.namespace.descriptor) as nft:
            return nft.generation()

    def ruleset(self) -> Any:
        """Everything in the node's nf_tables, as nft tells it."""
        return json.loads(self.lab.node.run([program("nft"), "-j", "list", "ruleset"]).stdout)

    def tables(self) -> list[str]:
        """The names of the node's tables."""
        with NftSocket(namespace=self.lab.node.namespace.descriptor) as nft:
            return sorted(table.name for table in nft.tables())

    # -- packets

    def ask(self, host: Host, address: str, port: int = 80, protocol: Protocol = Protocol.TCP, count: int = 1) -> list[Outcome]:
        """Ask several times at once."""
        question = Question(host=host, address=address, port=port, protocol=protocol, timeout=SURE)
        return list(ask_all([question] * count))

    def is_answered(self, host: Host, address: str, port: int = 80) -> bool:
        """Whether anybody answers over TCP; silence is not waited for."""
        return isinstance(ask_all([Question(host=host, address=address, port=port, timeout=DROP_TIMEOUT)])[0], Answer)

    def who(self, host: Host, address: str, port: int = 80, count: int = 16) -> set[str]:
        """The servers that answer over TCP; what is no answer by the name of its class."""
        outcomes = self.ask(host, address, port, count=count)
        return {each.server if isinstance(each, Answer) else type(each).__name__ for each in outcomes}

    def wait_for(self, host: Host, address: str, servers: set[str], port: int = 80) -> None:
        """Wait until just these servers answer."""
        wait_until(lambda: self.who(host, address, port, count=32) == servers, f"{servers} at {address}")


@contextmanager
def node_under_test(folder: Path, background: Callable[..., Running], **api: Any) -> Iterator[OnANode]:
    """Build a lab whose pods serve port 8080, with an API server inside the node that knows the Node."""
    with Lab() as lab:
        lab.route_services(lab.node)
        for host in lab.hosts.values():
            lab.serve(host, ServerPlan(ports=(8080,)))
        with lab.node.enter():
            server = FakeApi(**api).start()
        try:
            server.apply(node(lab.node))
            made = OnANode(lab, server, folder, background, iter(range(10, 250)))
            made.kubeconfig()
            yield made
        finally:
            server.faults.restore()
            server.stop()


def start_again(there: OnANode) -> None:
    """Start the API server again, at the same address."""
    with there.lab.node.enter():
        there.api.start()


def steadily(condition: Callable[[], object], seconds: float) -> bool:
    """Whether a condition holds all the while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not condition():
            return False
        time.sleep(0.02)
    return True
