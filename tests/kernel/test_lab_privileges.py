"""The lab without root: in an unprivileged user namespace, and what is said where that does not go."""

import subprocess
import sys

import pytest

from kproxy_core.testing.lab import command_in_user_namespace

from ..programs import program
from ..users import User

SCRIPT = """
from kproxy_core.model.names import Protocol
from kproxy_core.testing.lab import Lab, Question, ask_all, in_user_namespace, tally
assert in_user_namespace()
with Lab(names="inner") as lab:
    for host in lab.hosts.values():
        lab.serve(host, 80, *Protocol)
    outcomes = ask_all(
        Question(host=client, address=address, port=80, protocol=protocol, timeout=10)
        for client in lab.hosts.values()
        for server in lab.hosts.values()
        for address in (server.ipv4, server.ipv6)
        for protocol in Protocol
    )
    assert set(tally(outcomes).values()) == {54}, outcomes
    assert not [missing for missing in lab.missing if missing.capability.name != "NAMES"], lab.missing
    assert lab.node.run(["cat", "/proc/sys/net/ipv4/ip_forward"]).stdout == "1\\n"
    print(sorted(tally(outcomes)), lab.enter_command(lab.node))
"""

IMPORT = """
import sys
import kproxy_core.testing.lab
assert "pyroute2" not in sys.modules, "the lab must not cost a second before it is built"
from kproxy_core.testing.lab import Lab, LabError, can_build
print(can_build())
try:
    with Lab():
        print("built")
except LabError as error:
    print(error)
"""


@pytest.mark.kernel
def test_the_lab_works_for_an_unprivileged_user(unprivileged_with_namespaces: User) -> None:
    user = unprivileged_with_namespaces
    done = user.run("-m", "kproxy_core.testing.lab", user.interpreter, "-c", SCRIPT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("['a1', 'a2', 'abr1', 'abr2', 'b1', 'b2', 'node', 'node2', 'outside'] nsenter")


READ_ONLY = """
from kproxy_core.testing.lab import Answer, Dropped, Lab, ask, enter_user_namespace
from kproxy_core.testing.lab import namespaces
enter_user_namespace()
namespaces.mount("/proc/sys", "/proc/sys", "none", namespaces.MS_BIND)
namespaces.mount("none", "/proc/sys", "none", namespaces.MS_BIND | namespaces.MS_REMOUNT | namespaces.MS_RDONLY)
with Lab() as lab:
    lab.serve(lab.pods["a1"], 80)
    assert isinstance(ask(lab.node, lab.pods["a1"].ipv4, 80, timeout=10), Answer)
    assert ask(lab.outside, lab.pods["a1"].ipv4, 80, timeout=0.2) == Dropped(), "nobody forwards"
    for missing in lab.missing:
        print(missing.capability.name, missing.reason, missing.remedy, sep="; ")
"""


@pytest.mark.kernel
@pytest.mark.usefixtures("user_namespaces")
def test_read_only_kernel_parameters_are_reported() -> None:
    """As in a container that is not privileged."""
    done = subprocess.run([sys.executable, "-c", READ_ONLY], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "SYSCTLS; net.ipv" in done.stdout
    assert done.stdout.count("Read-only file system; mount /proc/sys writable") == len(done.stdout.splitlines())


ENTERED = """
from kproxy_core.testing.lab import Lab, enter_user_namespace
enter_user_namespace()
with Lab() as lab:
    print(lab.enter_command(lab.pods["a1"]), flush=True)
    input()
"""


@pytest.mark.kernel
@pytest.mark.usefixtures("user_namespaces")
def test_a_person_can_enter_a_host_from_another_terminal() -> None:
    program("nsenter")
    argv = [sys.executable, "-c", ENTERED]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        *command, shell = started.stdout.readline().split()
        assert shell == "bash"
        seen = subprocess.run([*command, "cat", "/proc/net/fib_trie"], capture_output=True, text=True, check=True)
        assert "10.244.1.10" in seen.stdout
        started.communicate("\n")
    assert started.returncode == 0


@pytest.mark.kernel
@pytest.mark.usefixtures("user_namespaces")
def test_the_lab_works_for_root_in_a_user_namespace() -> None:
    argv = command_in_user_namespace([sys.executable, "-c", SCRIPT])
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_privilege_it_can_be_imported_and_says_what_would_help(unprivileged: User) -> None:
    done = unprivileged.run("-c", IMPORT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "False\ncannot make a network namespace: unshare: Operation not permitted."
        " Run as root, or call enter_user_namespace() first\n"
    )


def test_a_process_with_threads_cannot_enter() -> None:
    script = """
import threading
from kproxy_core.testing.lab import LabError, enter_user_namespace
waiting = threading.Event()
threading.Thread(target=waiting.wait).start()
try:
    enter_user_namespace()
except LabError as error:
    print(error)
waiting.set()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "several threads" in done.stdout


MODULE = [sys.executable, "-m", "kproxy_core.testing.lab"]


def test_the_command_line_explains_itself() -> None:
    bare = subprocess.run(MODULE, capture_output=True, text=True, check=False)
    assert bare.returncode == 1
    assert "PROGRAM" in bare.stderr


@pytest.mark.usefixtures("user_namespaces")
def test_the_command_line_explains_its_failures() -> None:
    absent = subprocess.run([*MODULE, "/no/such/program"], capture_output=True, text=True, check=False)
    assert absent.returncode == 1
    assert "/no/such/program" in absent.stderr or "No such file" in absent.stderr


IN_THE_MACHINES_NETWORK = """
from kproxy_core.testing.lab import Answer, Lab, LabError, ask, can_build, enter_own_network
try:
    with Lab():
        print("built")
except LabError as error:
    print(can_build(), error)
enter_own_network()
with Lab(names="inner") as lab:
    lab.serve(lab.pods["a1"], 80)
    assert isinstance(ask(lab.node, lab.pods["a1"].ipv4, 80, timeout=10), Answer)
print(can_build())
"""


@pytest.mark.kernel
def test_root_of_a_user_namespace_needs_a_network_of_its_own(unprivileged_with_namespaces: User) -> None:
    """The machine's network can be left but not entered again."""
    done = unprivileged_with_namespaces.run_as_root_without_a_network("-c", IN_THE_MACHINES_NETWORK)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "False cannot make a network namespace: setns: Operation not permitted."
        " Run as root, or call enter_user_namespace() first\nTrue\n"
    )
