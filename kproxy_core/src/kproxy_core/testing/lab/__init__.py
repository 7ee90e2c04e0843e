"""The lab: a small dual-stack cluster in network namespaces, servers that say who they are, clients that know drop from refusal.

::

    with Lab() as lab:
        lab.serve(lab.pods["a1"], 8080)
        print(ask(lab.outside, lab.pods["a1"].ipv4, 8080))
"""

from kproxy_core.testing.lab.ask import AT_ONCE, ask, ask_all, ask_many
from kproxy_core.testing.lab.conversations import HeldConnection, NotConnectedError, UdpFlow, hold
from kproxy_core.testing.lab.faults import LabCapability, LabError, Missing
from kproxy_core.testing.lab.host import Host
from kproxy_core.testing.lab.lab import Lab
from kproxy_core.testing.lab.load import Failure, Load, LoadResult
from kproxy_core.testing.lab.namespaces import Namespace, can_return
from kproxy_core.testing.lab.outcomes import Answer, Closed, Dropped, Outcome, Refused, Unreachable, tally
from kproxy_core.testing.lab.plan import BRIDGE, POD_INTERFACE_PREFIX, AddressPair, LabPlan, PodPlan
from kproxy_core.testing.lab.questions import DROP_TIMEOUT, Question
from kproxy_core.testing.lab.servers import Behaviour, Connections, Served, Server, ServerPlan
from kproxy_core.testing.lab.userns import (
    can_build,
    command_in_user_namespace,
    enter_own_network,
    enter_user_namespace,
    exec_in_user_namespace,
    in_user_namespace,
)

__all__ = [
    "AT_ONCE",
    "BRIDGE",
    "DROP_TIMEOUT",
    "POD_INTERFACE_PREFIX",
    "AddressPair",
    "Answer",
    "Behaviour",
    "Closed",
    "Connections",
    "Dropped",
    "Failure",
    "HeldConnection",
    "Host",
    "Lab",
    "LabCapability",
    "LabError",
    "LabPlan",
    "Load",
    "LoadResult",
    "Missing",
    "Namespace",
    "NotConnectedError",
    "Outcome",
    "PodPlan",
    "Question",
    "Refused",
    "Served",
    "Server",
    "ServerPlan",
    "UdpFlow",
    "Unreachable",
    "ask",
    "ask_all",
    "ask_many",
    "can_build",
    "can_return",
    "command_in_user_namespace",
    "enter_own_network",
    "enter_user_namespace",
    "exec_in_user_namespace",
    "hold",
    "in_user_namespace",
    "tally",
]
