"""What somebody else on the node may do to everybody's rules."""

from pathlib import Path

from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.testing.lab import Host
from kproxy_core.wire.nft_operations import delete

_LEGACY = {
    "iptables-legacy": Path("/proc/thread-self/net/ip_tables_names"),
    "ip6tables-legacy": Path("/proc/thread-self/net/ip6_tables_names"),
}


def remove_all_rules(host: Host) -> None:
    """Delete every table of nf_tables (those of iptables-nft are among them), and empty those of legacy iptables."""
    with NftSocket(namespace=host.namespace.descriptor) as nft:
        nft.commit([delete(table) for table in nft.tables()])
    for program, names in _LEGACY.items():
        with host.enter():
            tables = names.read_text().split() if names.exists() else []
        for table in tables:
            host.run([program, "-t", table, "-F"])
            host.run([program, "-t", table, "-X"])
