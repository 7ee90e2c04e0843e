"""The kernel objects of this mode: what names each of them, and how a fresh process knows them as ours.

Chains begin with ``KPROXY-``, sets with ``KPROXY-4-`` or ``KPROXY-6-``; what is called so is ours, whichever version of us made
it. An object's key is ``(place, name)``:

- ``("v4 nat chain", "KPROXY-SVC-...")`` is a chain, its value its rules, each as iptables-save prints it behind ``-A CHAIN``;
- ``("v4 nat rule", "KPROXY-IP-5-3 -d 10.96.0.5/32 -p tcp -m tcp --dport 80")`` is the rule by which the dispatch tree finds a
  frontend: its chain and what it matches; the value is the rest of it. A chain of the tree belongs to many Service ports, a rule
  in it to one;
- ``("v4 nat branch", "KPROXY-IP-5-3")`` is a chain of the tree, its value the rule that leads to it, behind ``-A``; empty for a
  root, which rules of an ordinary chain lead to;
- ``("v4 nat hook", "PREROUTING")`` is what we have in a built-in chain, its value our rules there;
- ``("v4 set", "KPROXY-4-REJECT")`` is a set, its value its definition; ``("KPROXY-4-REJECT", packed key)`` an element, its value
  empty. Elements of the sets of sticky clients are the kernel's, not ours;
- ``("setting", "net/ipv4/conf/all/route_localnet")`` is a kernel setting, its value what it is set to;
- ``("variant", "legacy")`` is whatever of ours is in the variant of iptables that is not in use. It is never wanted.

The first rule of each chain of a Service port names it in a comment; so does each rule of the tree that leads to no such chain.
That is how a fresh process attributes them, and through them all else.
"""

import base64
import hashlib
from typing import Final

from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.names import Protocol, ServicePortName
from kproxy_core.wire.ipset import IpSet

Key = tuple[str, str | bytes]
Value = tuple[str, ...] | str | bytes | IpSet

CHAIN_PREFIX: Final = "KPROXY-"
VERSIONS: Final = {Family.IPV4: "v4", Family.IPV6: "v6"}
FAMILIES: Final = {version: family for family, version in VERSIONS.items()}
SET_PREFIXES: Final = {Family.IPV4: "KPROXY-4-", Family.IPV6: "KPROXY-6-"}
TABLES: Final = ("nat", "filter")

SETTING: Final = "setting"
ROUTE_LOCALNET: Final = "net/ipv4/conf/all/route_localnet"
OTHER_VARIANT: Final = "variant"

SERVICE_CHAIN: Final = "KPROXY-SVC-"
"""Picks one of the cluster's endpoints."""
LOCAL_CHAIN: Final = "KPROXY-SVL-"
"""Picks one of this node's endpoints."""
ENDPOINT_CHAIN: Final = "KPROXY-SEP-"
"""Remembers the client of a sticky Service port, and sends it to one endpoint."""
FRONTEND_CHAIN: Final = "KPROXY-EXT-"
"""Does what some frontends need before that: asks source ranges, tells inside from outside, marks for masquerading."""
PORT_CHAINS: Final = (ENDPOINT_CHAIN, SERVICE_CHAIN, LOCAL_CHAIN, FRONTEND_CHAIN)
"""Prefixes of the chains that belong to one Service port, those that others lead to first."""

_PROTOCOLS: Final = {protocol: protocol.name.lower() for protocol in Protocol}


def hashed(prefix: str, text: str) -> str:
    """A name of ours for a thing of unlimited length: iptables has room for 28 bytes, ipset for 31."""
    return prefix + base64.b32encode(hashlib.sha256(text.encode()).digest())[:16].decode()


def protocol_word(protocol: Protocol) -> str:
    """``tcp``, ``udp`` or ``sctp``."""
    return _PROTOCOLS[protocol]


def comment(name: ServicePortName) -> str:
    """What names a Service port in a rule."""
    return f'-m comment --comment "{name}"'


def host(address: Address) -> str:
    """An address as iptables-save prints it for a match."""
    return f"{address}/{len(address) * 8}"


def endpoint_text(address: Address, port: int) -> str:
    """An endpoint as iptables-save prints it for DNAT."""
    return f"{address}:{port}" if len(address) == 4 else f"[{address}]:{port}"
