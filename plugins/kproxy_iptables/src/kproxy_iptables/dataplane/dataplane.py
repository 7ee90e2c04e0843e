"""The tables and sets of the network namespace it was opened in, through iptables-restore, iptables-save and ipset's netlink."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import evolve

from kproxy_core.kernel import sysctl
from kproxy_core.kernel.errors import KernelError
from kproxy_core.kernel.failed_texts import DIRECTORY, FailedTexts
from kproxy_core.kernel.ipset import IpSetSocket
from kproxy_core.kernel.iptables import IptablesPrograms, Variant
from kproxy_core.model.addresses import Family
from kproxy_core.model.state import ServicePort
from kproxy_core.plugin.backend import ApplyResult, Dataplane, Drift, Failure, Leftovers
from kproxy_core.plugin.errors import ApplyError, UnsupportedError
from kproxy_core.program.program import Program
from kproxy_core.wire.errors import WireError
from kproxy_iptables import sets
from kproxy_iptables.attribution import attribute
from kproxy_iptables.codec import read_table
from kproxy_iptables.dataplane.clearing import clear_tables, describe_tables
from kproxy_iptables.dataplane.node import chosen, features_here, log
from kproxy_iptables.dataplane.steps import (
    ROUTE_LOCALNET_CHAIN,
    Hands,
    StepRefusedError,
    carry_out,
    destroy_set,
    enlarge_set,
    is_written,
)
from kproxy_iptables.dataplane.watching import DriftWatch
from kproxy_iptables.objects import OTHER_VARIANT, ROUTE_LOCALNET, SET_PREFIXES, SETTING, TABLES, VERSIONS, Key, Value
from kproxy_iptables.plan import FIXED_SETS, AddElements, DeleteElements, DestroySet, MakeSet, Step, WriteSetting
from kproxy_iptables.scaffold import INPUT, Features

MODE: Final = "iptables"
_CHANGING_SETS: Final = (MakeSet, DestroySet, AddElements, DeleteElements)


class IptablesDataplane(Dataplane[Key, Value]):
    """The kernel of one network namespace, as this mode sees it."""

    def __init__(self, wanted: Features, variant: str | None, failed_texts: Path | None) -> None:
        try:
            choice, holdings = chosen(variant)
            if choice is None:
                raise UnsupportedError("iptables is not installed: install the package iptables")
            self._programs = IptablesPrograms(Variant(choice.variant))
            self.features: Final = features_here(wanted, self._programs)
            self._ipset = IpSetSocket()
            self._watch = DriftWatch(self._programs, self._ipset, sorted(self.features.families))
        except KernelError as error:
            raise UnsupportedError(f"iptables cannot be used: {error}") from error
        log.info("the variant %s of iptables is used: %s", choice.variant, choice.reason)
        self._leftovers = {name: held.ours for name, held in holdings.items() if name != choice.variant and held.ours}
        for name, lines in self._leftovers.items():
            log.warning("the variant %s of iptables still has rules of kproxy (%s): they will be removed", name, ", ".join(lines))
        self._unwritable: set[str] = set()
        self._hands = Hands(
            programs=self._programs,
            ipset=self._ipset,
            writing=self._watch.writing,
            failed_texts=FailedTexts(MODE, failed_texts or DIRECTORY),
            clear_variant=self._clear_variant,
            unwritable=self._unwritable,
        )

    # -- reading

    def read(self) -> Program[Key, Value]:
        """Read tables and sets, attribute them by comments and names, and take that as the state to watch from."""
        started = time.monotonic()
        try:
            with self._programs.at_home():
                self._watch.settle()
                objects = self._read_tables()
                self._read_setting(objects)
                self._read_sets(objects)
                self._watch.has_read(time.monotonic() - started)
        except (KernelError, WireError) as error:
            raise ApplyError(f"the rules cannot be read: {error}") from error
        objects.update(((OTHER_VARIANT, name), lines) for name, lines in self._leftovers.items())
        return attribute(objects)

    def _read_tables(self) -> dict[Key, Value]:
        objects: dict[Key, Value] = {}
        for family in self.features.families:
            for table in TABLES:
                objects.update(read_table(family, table, self._programs.save(family, table)))
        return objects

    def _read_setting(self, objects: dict[Key, Value]) -> None:
        """Note the setting that a chain says we have written, or that our rules in INPUT guard."""
        place = f"{VERSIONS[Family.IPV4]} filter chain"
        written = objects.pop((place, ROUTE_LOCALNET_CHAIN), None) is not None
        guard = objects.get((place, INPUT), ())
        if written or (isinstance(guard, tuple) and len(guard) > 1):
            value = "1" if ROUTE_LOCALNET in self._unwritable else sysctl.read(ROUTE_LOCALNET)
            objects[SETTING, ROUTE_LOCALNET] = value

    def _read_sets(self, objects: dict[Key, Value]) -> None:
        families = {SET_PREFIXES[family]: family for family in self.features.families}
        for found in self._ipset.sets():
            family = next((families[prefix] for prefix in families if found.name.startswith(prefix)), None)
            if family is None:
                continue
            objects[sets.place(family), found.name] = found.definition or found.type_name
            if found.definition is not None and found.definition == FIXED_SETS.get(found.name):
                objects.update(((found.name, key), b"") for key in self._ipset.keys(found.definition))

    # -- writing

    def apply(self, plan: Sequence[Step]) -> ApplyResult:
        """Carry out the steps in order, up to the first that is refused."""
        done = 0
        try:
            sets_change = any(isinstance(step, _CHANGING_SETS) for step in plan)
            watched = self._watch.changing_sets() if sets_change else contextlib.nullcontext()
            with self._programs.at_home(), watched:
                for step in plan:
                    done += carry_out(self._hands, step)
        except StepRefusedError as error:
            return ApplyResult(done=done, failures=self._excused(error.failures))
        except (KernelError, WireError) as error:
            return ApplyResult(done=done, failures=(Failure(message=str(error), retryable=True),))
        return ApplyResult(done=done)

    def _excused(self, failures: tuple[Failure, ...]) -> tuple[Failure, ...]:
        """Nobody's fault where others change rules: what the plan was made for may not be there any more. It is read again."""
        if not self._watch.suspects():
            return failures
        return tuple(evolve(failure, retryable=True) for failure in failures)

    def _clear_variant(self, variant: Variant) -> None:
        with IptablesPrograms(variant) as programs:
            clear_tables(programs)
        self._leftovers.pop(variant.value, None)

    # -- watching

    def fileno(self) -> int:
        """Return the descriptor that tells of changes to nf_tables; -1 with the legacy variant."""
        return self._watch.fileno()

    def drift(self) -> Drift | None:
        """Say whether others changed our rules or sets. Sets that fill up with clients are given more room in passing."""
        try:
            with self._programs.at_home():
                drift = self._watch.drift()
            for crowded in self._watch.take_crowded():
                enlarge_set(self._ipset, crowded)
            return drift
        except (KernelError, WireError) as error:
            raise ApplyError(f"the rules cannot be watched: {error}") from error

    # -- for people

    def lookup(self, port: ServicePort) -> Mapping[Key, Value]:
        """Return what the kernel holds for one Service port, and the branches that lead to it; reads everything."""
        program = self.read()
        fragment = program.fragments.get(port.key)
        own = dict(fragment.own) if fragment is not None else {}
        leading = {str(name).partition(" ")[0] for place, name in own if place.endswith(" rule")}
        leading |= {chain.rpartition("-")[0] for chain in leading}
        branches = {key: value for key, value in program.common.items() if key[0].endswith(" branch") and key[1] in leading}
        return {**own, **branches}

    def leftovers(self) -> Leftovers:
        """Tell what is ours in the tables of both variants, which sets are, and what we have set in the kernel."""
        try:
            with self._programs.at_home():
                tables = [line for programs in self._all_programs() for line in describe_tables(programs)]
                setting = [f"setting {ROUTE_LOCALNET}"] if is_written(self._hands) else []
                return Leftovers(lines=(*setting, *tables, *(f"set {name}" for name in self._own_sets())))
        except KernelError as error:
            raise ApplyError(f"the rules cannot be read: {error}") from error

    def cleanup(self) -> Leftovers:
        """Remove it: what we have set, what leads into our chains, then the chains, then the sets."""
        found = self.leftovers()
        try:
            with self._programs.at_home():
                carry_out(self._hands, WriteSetting(ROUTE_LOCALNET, None))
                for programs in self._all_programs():
                    clear_tables(programs)
                for name in self._own_sets():
                    destroy_set(self._ipset, name)
                self._leftovers.clear()
                self._watch.settle()
        except (KernelError, WireError) as error:
            raise ApplyError(f"not everything could be removed: {error}") from error
        return found

    def _all_programs(self) -> Iterator[IptablesPrograms]:
        yield self._programs
        for variant in Variant:
            if variant is not self._programs.variant:
                with IptablesPrograms(variant) as programs:
                    yield programs

    def _own_sets(self) -> list[str]:
        prefixes = tuple(SET_PREFIXES.values())
        return sorted(found.name for found in self._ipset.sets() if found.name.startswith(prefixes))

    def close(self) -> None:
        """Close the sockets; the kernel keeps the rules."""
        self._watch.close()
        self._ipset.close()
        self._programs.close()
