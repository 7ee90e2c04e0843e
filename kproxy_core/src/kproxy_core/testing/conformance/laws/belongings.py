"""What is in a node's kernel, whoever it belongs to, as lists that can be compared; and things of others to put there."""

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen

from kproxy_core.testing.lab import Host

_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
_BUILT_IN = frozenset({"filter", "nat", "mangle", "raw", "security"})
"""Tables of iptables. Once used they stay, with chains of the kernel's own that are empty."""

Listing = tuple[str, ...]


class NotHereError(Exception):
    """A kind of thing cannot be had on this machine; the text says why."""


def program(name: str) -> str:
    """Where a program is. Raises :class:`NotHereError`."""
    found = shutil.which(name, path=_PATH)
    if found is None:
        raise NotHereError(f"{name} is not installed")
    return found


def _run(host: Host, command: str, text: str | None = None) -> str:
    name, *arguments = command.split()
    return host.run([program(name), *arguments], input=text).stdout


def _try(host: Host, command: str) -> None:
    """Run a command that only a kernel refuses which has no such things. Raises :class:`NotHereError`."""
    name, *arguments = command.split()
    done = host.run([program(name), *arguments], check=False)
    if done.returncode:
        raise NotHereError(f"{command}: {done.stderr.strip()}")


@frozen
class Belongings:
    """Things of one kind: how to list all of them, to put some there that are others', and to take these away again.

    ``trial`` is a command that fails where there can be none.
    """

    trial: str
    listing: Callable[[Host], Listing]
    plant: Callable[[Host], None]
    uproot: Callable[[Host], None]

    def require(self, host: Host) -> None:
        """Raise :class:`NotHereError` where there can be none."""
        _try(host, self.trial)


# -- nf_tables

_NFT = """
table inet kproxy {
    set s { type ipv4_addr; flags interval; elements = { 198.18.0.0/24 } }
    chain c { type filter hook forward priority 10; ip saddr @s accept comment "not kproxy's"; }
}
table ip kproxy-2 {
    map m { type ipv4_addr : verdict; elements = { 10.0.0.1 : drop } }
    chain prerouting { type nat hook prerouting priority dstnat; ip daddr 198.18.1.1 dnat to 198.18.1.2; }
}
table bridge kproxy { chain c { }; }
"""


def _nft(host: Host) -> Listing:
    objects = [next(iter(each.items())) for each in json.loads(_run(host, "nft -j list ruleset"))["nftables"]]
    hollow = _hollow(objects)
    return tuple(
        f"{kind} {json.dumps(_steady(body), sort_keys=True)}"
        for kind, body in objects
        if kind != "metainfo" and (body["family"], body["name"] if kind == "table" else body["table"]) not in hollow
    )


def _hollow(objects: Sequence[tuple[str, Any]]) -> set[tuple[str, str]]:
    """The tables of iptables in which there is nothing but empty chains of the kernel's own."""
    found = {(body["family"], body["name"]) for kind, body in objects if kind == "table" and body["name"] in _BUILT_IN}
    for kind, body in objects:
        if kind not in ("table", "metainfo") and not (kind == "chain" and body.get("policy") == "accept"):
            found.discard((body["family"], body["table"]))
    return found


def _steady(body: Any) -> Any:
    """Without handles and counters, which change by themselves."""
    if isinstance(body, dict):
        return {name: _steady(value) for name, value in body.items() if name not in ("handle", "packets", "bytes", "expires")}
    return [_steady(each) for each in body] if isinstance(body, list) else body


def _plant_nft(host: Host) -> None:
    _run(host, "nft -f -", _NFT)


def _uproot_nft(host: Host) -> None:
    for table in ("inet kproxy", "ip kproxy-2", "bridge kproxy"):
        _run(host, f"nft delete table {table}")


# -- iptables

_RULES = """*nat
:KUBE-SERVICES - [0:0]
:MY-KPROXY - [0:0]
-A PREROUTING -m comment --comment "not kproxy's" -j KUBE-SERVICES
-A POSTROUTING -j MY-KPROXY
-A KUBE-SERVICES -p tcp -m tcp --dport 65000 -j RETURN
-A MY-KPROXY -m mark --mark 0x1/0x1 -j RETURN
COMMIT
*filter
:MY-FIREWALL - [0:0]
-A FORWARD -j MY-FIREWALL
-A MY-FIREWALL -p udp -m udp --dport 65000 -j ACCEPT
COMMIT
"""


def _iptables(variant: str, host: Host) -> Listing:
    lines = _run(host, f"{variant}-save").splitlines()
    lines = [re.sub(r"\[\d+:\d+\]", "[0:0]", line) for line in lines if line[:1] in ("*", ":", "-")]
    table = ""
    found = []
    for line in lines:
        if line.startswith("*"):
            table = line[1:]
        elif not re.fullmatch(r":[A-Z]+ ACCEPT \[0:0\]", line):  # a chain of the kernel's own
            found.append(f"{table} {line}")
    return tuple(found)


def _of_iptables(variant: str) -> Belongings:
    emptying = "".join(f"*{table}\n-F\n-X\nCOMMIT\n" for table in ("nat", "filter"))

    def plant(host: Host) -> None:
        _run(host, f"{variant}-restore --noflush", _RULES)

    def uproot(host: Host) -> None:
        _run(host, f"{variant}-restore --noflush", emptying)

    return Belongings(f"{variant} -t nat -S", lambda host: _iptables(variant, host), plant, uproot)


# -- sets, addresses and routes

_SETS = """create kube-cluster hash:ip,port timeout 0
add kube-cluster 198.18.0.1,tcp:80
create my-kproxy hash:net family inet6
add my-kproxy 2001:db8:99::/48
"""


def _ipset(host: Host) -> Listing:
    lines = _run(host, "ipset save").splitlines()
    return tuple(sorted(re.sub(r" (initval \S+|timeout [1-9]\d*)", "", line) for line in lines))


def _plant_ipset(host: Host) -> None:
    _run(host, "ipset restore", _SETS)


def _uproot_ipset(host: Host) -> None:
    for name in ("kube-cluster", "my-kproxy"):
        _run(host, f"ipset destroy {name}")


_LISTS = ("-o link show", "-o addr show", "rule show", "-6 rule show", "route show table all", "-6 route show table all")
_ROUTING = {
    "link add kproxy0 type bridge": "link del kproxy0",
    "addr add 198.18.2.1/32 dev lo": "addr del 198.18.2.1/32 dev lo",
    "rule add fwmark 0x99 lookup 4711": "rule del fwmark 0x99 lookup 4711",
    "route add 198.18.3.0/24 dev eth0 table 4711": "route flush table 4711",
}
"""Commands of ip, each with the one that takes it back."""


def _routing(host: Host) -> Listing:
    text = "".join(_run(host, f"ip {command}") for command in _LISTS)
    return tuple(re.sub(r" (valid|preferred)_lft \S+| expires \S+", "", line) for line in text.splitlines())


def _plant_routing(host: Host) -> None:
    for command in _ROUTING:
        _run(host, f"ip {command}")


def _uproot_routing(host: Host) -> None:
    for command in _ROUTING.values():
        _run(host, f"ip {command}")


KINDS: Mapping[str, Belongings] = {
    "nft": Belongings("nft list tables", _nft, _plant_nft, _uproot_nft),
    **{variant: _of_iptables(variant) for variant in ("iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy")},
    "ipset": Belongings("ipset list -n", _ipset, _plant_ipset, _uproot_ipset),
    "routing": Belongings("ip link show", _routing, _plant_routing, _uproot_routing),
}
"""All kinds, by name."""


def is_kept(before: Listing, now: Listing) -> bool:
    """Whether everything that was there still is, in the same order, whatever else there is."""
    rest = iter(now)
    return all(line in rest for line in before)
