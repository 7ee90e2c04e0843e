"""The oracle: what must become of a packet, as a second opinion on everything that decides or renders.

It was written from the rules below, the API's reference and kube-proxy's behaviour alone, without looking at what it judges: it
reads the objects as the API gives them and answers for one packet at a time, slowly and simply. It knows only the values of
:mod:`kproxy_core.model` and the settings.

The rules, cited by number in the comments:

1. Usable endpoints, in the whole cluster and on this node separately: the ready ones; if there is none, those that still serve
   while they terminate.
2. Of the cluster's ready endpoints: if each has node hints and one names this node, those that do; else the same with zones;
   else all.
3. No usable endpoint anywhere: refused, on every frontend. Some, but not where the policy wants them: dropped.
4. External frontends (NodePort, external and load balancer addresses) with policy Local: local pods and the node's own processes
   get the cluster's endpoints all the same, only the outside is held to this node's.
5. Masqueraded is: a client that is its own endpoint (hairpin); what comes by an external frontend with policy Cluster, or with
   policy Local from the node itself, or by a NodePort on loopback; and what goes to a cluster address with ``masqueradeAll`` or
   from somebody whom the local detection, if there is one, does not call a local pod.
6. Source ranges apply to load balancer addresses, for pods and the node too; whoever is not in them is dropped.

Where kube-proxy's modes differ, its nftables mode is followed: an unused port of a cluster address is refused, an unallocated
address of a ServiceCIDR dropped, NodePorts answer on primary addresses unless told otherwise. A guard goes beyond kube-proxy:
what would cut off the node or the API server is as if it were not there. "Silent text" marks decisions that none of these
sources makes.
"""

from kproxy_core.testing.oracle.decide import decide, verdict
from kproxy_core.testing.oracle.scene import Scene, Site

__all__ = ["Scene", "Site", "decide", "verdict"]
