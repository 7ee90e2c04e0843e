"""Finds and removes everything that is called ours, in either variant of iptables, and touches nothing else."""

from collections.abc import Iterator

from kproxy_core.kernel.iptables import IptablesPrograms
from kproxy_core.model.addresses import Family
from kproxy_core.plugin.errors import ApplyError
from kproxy_iptables.clearance import TableClearance, clearance
from kproxy_iptables.dataplane.node import LOCK_PATIENCE, families_of_kernel
from kproxy_iptables.objects import TABLES


def found_in(programs: IptablesPrograms) -> Iterator[tuple[Family, TableClearance]]:
    """What of ours is in the tables of a variant. The filter table first: what refuses must go before what translates.

    Raises IptablesError.
    """
    for family in families_of_kernel():
        if programs.has(family):
            for table in reversed(TABLES):
                found = clearance(table, programs.save(family, table))
                if found is not None:
                    yield family, found


def describe_tables(programs: IptablesPrograms) -> list[str]:
    """What of ours is in the tables of a variant, one line each."""
    return [_line(programs, family, found) for family, found in found_in(programs)]


def clear_tables(programs: IptablesPrograms) -> None:
    """Remove what is ours from the tables of a variant.

    Raises ApplyError, IptablesError.
    """
    for family, found in list(found_in(programs)):
        done = programs.restore(family, (found.text,), wait=LOCK_PATIENCE)
        if not done.ok:
            raise ApplyError(f"{_line(programs, family, found)} could not be removed: {done.message}")


def _line(programs: IptablesPrograms, family: Family, found: TableClearance) -> str:
    return f"{family.label} table {found.table} ({programs.variant.value}): {found.chains} chains, {found.rules} rules"
