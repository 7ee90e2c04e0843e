"""What goes wrong in a transaction: it is taken back, others are unharmed, the culprit is found; and life without root."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from attrs import evolve

from kproxy_core.engine import events as e
from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.model.state import NodeContext, ServicePort
from kproxy_core.plugin.backend import ApplyResult
from kproxy_core.program.program import Fragment, Program
from kproxy_core.testing.lab import command_in_user_namespace, hold
from kproxy_core.testing.node import NodeUnderTest
from kproxy_core.wire.nfnetlink import Family
from kproxy_core.wire.nft_constants import TableFlag
from kproxy_core.wire.nft_data import goto
from kproxy_core.wire.nft_expressions import verdict
from kproxy_core.wire.nft_objects import Table
from kproxy_core.wire.nft_operations import Operation, add, delete
from kproxy_nftables import dataplane, sets
from kproxy_nftables.backend import NftablesBackend
from kproxy_nftables.objects import Chain, Key, Rule, Value
from kproxy_nftables.plan import phases

from .world import EVERYWHERE, TCP, World, everything, see_everything

pytestmark = pytest.mark.kernel

MISSING = delete(Table(family=Family.IPV4, name="no-such-table"))
"""An operation that the kernel refuses."""


def plan_for(world: World) -> tuple[Sequence[Operation], Program[Key, Value]]:
    """The plan of a change that touches everything, not yet applied."""
    before = world.node.play.engine.program
    world.node.play.hold()
    changed = [thing for thing in everything(world) if str(thing.name) not in ("default/inner", "default/brief")]
    world.node.set(*changed, *world.cluster.endpoints("plain", "a1 b1 b2 abr1"), world.cluster.service("more", 250, external=250))
    (effect,) = (effect for effect in world.node.play._waiting if isinstance(effect, e.ApplyPlan))
    return effect.plan, before


def test_an_error_anywhere_in_a_transaction_takes_all_of_it_back(world: World) -> None:
    world.node.set(*everything(world))
    plan, before = plan_for(world)
    first, *_ = phases(plan)
    assert len(first) > 10
    kernel = world.node.dataplane
    held = hold(world.lab.outside, world.cluster.cluster(201).ipv4, 80)
    objects = kernel.read()
    for position in range(len(first) + 1):
        result: ApplyResult = kernel.apply([*plan[:position], MISSING, *plan[position:]])
        assert result.failures
        assert result.unchanged
        assert not result.failures[0].retryable
        assert kernel.read() == objects, f"an error at {position} left something behind"
    assert held.alive(10)
    held.close()
    see_everything(world)
    world.node.play.release()
    assert not world.node.difference()
    assert before is not world.node.play.engine.program


def test_an_error_in_a_later_phase_leaves_nobody_without_service(world: World) -> None:
    world.node.set(*everything(world))
    plan, _ = plan_for(world)
    assert len(phases(plan)) > 1
    start = len(phases(plan)[0]) + 1
    for position in range(start, len(plan) + 1, 3):
        result = world.node.dataplane.apply([*plan[:position], MISSING, *plan[position:]])
        assert result.failures
        assert not result.unchanged
        asked = world.ask(EVERYWHERE, world.cluster.cluster(201), protocols=TCP)
        world.see(asked.answered("a1 b1 b2 abr1"))
        # As the engine does after a failure of that kind: a fresh look, and what then differs.
        world.node.play._waiting.clear()
        world.node.restart(cluster=everything(world))
        plan, _ = plan_for(world)
    world.node.play._waiting.clear()
    world.node.restart(cluster=everything(world))
    assert not world.node.difference()


class BadServices(NftablesBackend):
    """The mode, but Services called ``bad...`` are rendered into something that the kernel refuses."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self._how = how

    def compile(
        self, port: ServicePort, node: NodeContext, previous: Fragment[Key, Value] | None, fresh_id: int
    ) -> Fragment[Key, Value]:
        """Render it."""
        fragment = super().compile(port, node, previous, fresh_id)
        if not port.name.name.startswith("bad"):
            return fragment
        family = "ip" if port.family.bits == 32 else "ip6"
        if self._how == "element":  # the kernel names the element that it minds
            size = port.family.bits // 8
            key: Key = (f"{family} {sets.SOURCE_RANGES}", b"\1\0\0\0" + b"\xff" * size + b"\1\0\0\0" + bytes(size))
            return evolve(fragment, own={**fragment.own, key: b""})
        # ... but not whose chain it is that leads nowhere
        chain = Chain(rules=(Rule(expressions=(verdict(goto("nowhere")),)),))
        return evolve(fragment, shared={**fragment.shared, (f"{family} chain", f"theirs-{port.name.name}"): chain})


@pytest.mark.parametrize("how", ["element", "chain"])
def test_bad_services_are_found_and_all_others_are_served(world: World, how: str) -> None:
    world.node.set()
    good = [world.cluster.service(f"web{number}", number) for number in range(20, 60)]
    bad = [world.cluster.service(f"bad{number}", number) for number in (61, 62)]
    slices = [piece for each in (*good, *bad) for piece in world.cluster.endpoints(each.name.name, "a1 b1")]
    with world.ended(), NodeUnderTest(world.lab.node, BadServices(how), world.defaults) as node:
        node.set(*good, *bad, *slices)
        refused = {port.name.name for port in node.play.engine.quarantine.refusals}
        assert refused == {"bad61", "bad62"}
        assert node.reports[-1].failed
        world.see(
            *(world.ask("outside", world.cluster.cluster(number), protocols=TCP).answered("a1 b1") for number in range(20, 60)),
            world.ask("outside", world.cluster.cluster(61), protocols=TCP).dropped(),
        )
        # Others' changes are not held up by them.
        node.put(*world.cluster.endpoints("web20", "b2"))
        world.see(world.ask("outside", world.cluster.cluster(20), protocols=TCP).answered("b2"))
    # A version that can render them makes up for it.
    world.node.set(*good, *bad, *slices)
    world.see(world.ask("outside", world.cluster.cluster(61), protocols=TCP).answered("a1 b1"))
    assert not world.node.difference()


@pytest.mark.usefixtures("user_namespaces")
def test_without_root_transactions_are_cut_and_all_is_well() -> None:
    """In an unprivileged user namespace a message may not be larger than some 200 kB, a thousand Services take more."""
    script = Path(__file__).with_name("unprivileged.py")
    argv = command_in_user_namespace([sys.executable, str(script)])
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    word, transactions = done.stdout.split()
    assert word == "transactions"
    assert int(transactions) > 3


def test_without_ipv6_in_the_kernel_ipv4_is_served(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a kernel refuses the IPv6 table. Here somebody else owns it, which has the same effect."""
    number = world.number()
    world.node.dataplane.cleanup()
    with world.lab.node.enter(), NftSocket() as owner:
        owned = Table(family=Family.IPV6, name="kproxy-nftables", flags=TableFlag.OWNER)
        assert owner.commit([add(owned)]).ok
        monkeypatch.setattr(dataplane, "_IPV6_INTERFACES", Path("/no/such/file"))
        with NodeUnderTest(world.lab.node, NftablesBackend(), world.defaults) as node:
            report = node.set(world.cluster.service("web", number), *world.cluster.endpoints("web", "a1 b1"))
            assert report is not None
            assert report.ok, report
            world.see(world.ask(EVERYWHERE, world.cluster.cluster(number).ipv4).answered("a1 b1"))
            report = node.put(*world.cluster.endpoints("web", "b1"))
            assert report is not None
            assert report.ok
            assert node.check()
            assert not node.difference()
            assert node.backend.probe().usable
    world.node.restart()
