"""The only file that meets the kernel, and what its objects are: all in one table, by keys of a kind and a name.

The value of a chain is its rules. Maps and sets are told by their names, and have none. An element has its map's or set's name
for a kind, and its verdict for a value. nft lists rules in words of its own, so their digests are kept in their comments.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kproxy_core.kernel.text import FedProgram
from kproxy_core.plugin.backend import Leftovers
from kproxy_core.program.digest import Digested
from kproxy_core.program.program import Program

Key = tuple[str, str]
Value = tuple[Digested, ...] | str

TABLE = "inet kproxy-nfttext"
KINDS = ("chain", "map", "set")
DEFINITIONS = {
    "frontends": "{{ type {} . inet_proto . inet_service : verdict; }}",
    "node-ports": "{{ type inet_proto . inet_service : verdict; }}",
    "cluster-ips": "{{ type {}; }}",
    "clients": "{{ type {}; size 65536; flags dynamic,timeout; }}",
    "prerouting": "{{ type nat hook prerouting priority -100; }}",
    "output": "{{ type nat hook output priority -100; }}",
    "postrouting": "{{ type nat hook postrouting priority 100; }}",
}


def definition(name: str) -> str:
    """What nft is told of a chain, map or set; names have the form ``what.family.which``."""
    return DEFINITIONS.get(name.partition(".")[0], "").format("ipv6_addr" if ".ip6" in name else "ipv4_addr")


class Table(FedProgram[Key, Value]):
    """The table in the network namespace in which this was opened."""

    program, feed, check, clearance = "nft", ("-f", "-"), ("--check", "-f", "-"), f"delete table {TABLE}"

    def read(self) -> Program[Key, Value]:
        listed = self.ask("--json", "--numeric", "list", "table", *TABLE.split())
        found: dict[Key, Value] = {}
        for kind, body in (pair for item in (json.loads(listed)["nftables"] if listed else ()) for pair in item.items()):
            if kind == "rule":
                found["chain", body["chain"]] = *found["chain", body["chain"]], Digested("", body.get("comment", ""))
            elif kind in KINDS:
                found[kind, body["name"]] = () if kind == "chain" else ""
                found.update(elements(body))
        return Program(common=found)

    def leftovers(self) -> Leftovers:
        return Leftovers(lines=tuple(line for line in self.ask("list", "tables").splitlines() if line == f"table {TABLE}"))


def elements(body: Mapping[str, Any]) -> Iterator[tuple[Key, Value]]:
    """The elements of a map or set of ours. Those of the sets of clients are the kernel's."""
    name = body["name"]
    for element in body.get("elem", ()) if name.startswith(("frontends.", "node-ports.", "cluster-ips.")) else ():
        key, verdict = element if isinstance(element, list) else (element, {})
        words = [f"{verb} {to['target']}" if to else verb for verb, to in verdict.items()]
        yield (name, " . ".join(map(str, key["concat"])) if isinstance(key, dict) else key), "".join(words)
