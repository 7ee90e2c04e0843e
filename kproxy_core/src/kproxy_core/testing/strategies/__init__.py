"""Hypothesis strategies for small, nasty clusters, for packets that meet them, and for the ways in which a watch tells of them.

Everything is drawn from small pools, so that collisions are frequent: two Services at one address, one endpoint in three slices,
an external address that is the node's, an endpoint that is the client. ``scenes()`` is the usual entry: a cluster, settings and a
node.
"""

from kproxy_core.testing.strategies.clusters import nodes, scenes, services, settings, sites, slices, snapshots
from kproxy_core.testing.strategies.histories import changes_leading_to, objects_of
from kproxy_core.testing.strategies.packets import packets, packets_at

__all__ = [
    "changes_leading_to",
    "nodes",
    "objects_of",
    "packets",
    "packets_at",
    "scenes",
    "services",
    "settings",
    "sites",
    "slices",
    "snapshots",
]
