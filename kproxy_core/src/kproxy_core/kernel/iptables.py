"""The programs iptables-restore and iptables-save of one network namespace, in both variants, and the kernel's word on a table.

Since iptables 1.8 there are two variants of each program: one writes to nf_tables, the other to the older tables of its own,
called legacy. Rules of the one are invisible to the other, and the kernel obeys both (kubernetes#71305).
"""

from __future__ import annotations

import ctypes
import re
import socket
import struct
import subprocess
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Final

from attrs import frozen

from kproxy_core.kernel import programs
from kproxy_core.kernel.closing import Closing
from kproxy_core.kernel.errors import KernelError
from kproxy_core.model.addresses import Family

_STEMS: Final = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}
_NO_LOCK: Final = 4
"""The exit status without the lock of the tables, among others (iptables' RESOURCE_PROBLEM)."""
_LINE: Final = re.compile(r"line:? (\d+)")
_LEGACY_NAMES: Final = {Family.IPV4: "ip_tables_names", Family.IPV6: "ip6_tables_names"}
_LEVELS: Final = {Family.IPV4: 0, Family.IPV6: 41}
"""SOL_IP and SOL_IPV6."""
_GET_INFO: Final = 64
"""IPT_SO_GET_INFO and IP6T_SO_GET_INFO (linux/netfilter_ipv4/ip_tables.h)."""
_INFO: Final = struct.Struct("=32sI5I5III")
_libc = ctypes.CDLL(None, use_errno=True)


class Variant(Enum):
    """Where the programs write to; the value is what ``iptables --version`` says in parentheses."""

    NFT = "nf_tables"
    LEGACY = "legacy"


class IptablesError(KernelError):
    """A program is missing, or could not tell what is in a table."""


@frozen(kw_only=True)
class Restored:
    """What became of a text for iptables-restore.

    ``line`` is the number of the line at fault, counted from 1, None where it was not told. ``lock_remedy`` is
    empty, or the lock of the tables could not be had, and it says what to do about that: nothing of the text is at fault.
    """

    ok: bool
    message: str = ""
    line: int | None = None
    lock_remedy: str = ""


@frozen(kw_only=True)
class TableInfo:
    """How large a legacy table is: entries (rules, and one or two for each chain) and bytes."""

    entries: int
    size: int


def find_program(variant: Variant, family: Family, action: str) -> str | None:
    """The path of a program, ``action`` being restore or save; None where it is not installed.

    Looks for the name that tells the variant (iptables-nft-restore), then for the plain one that says that it is of this variant.
    """
    stem = _STEMS[family]
    word = "nft" if variant is Variant.NFT else "legacy"
    found = programs.find_program(f"{stem}-{word}-{action}")
    if found is not None:
        return found
    plain = programs.find_program(f"{stem}-{action}")
    return plain if plain is not None and plain_variant(family) is variant else None


def plain_variant(family: Family) -> Variant | None:
    """The variant of the program that is plainly called iptables (or ip6tables): the distribution's or the operator's choice."""
    program = programs.find_program(_STEMS[family])
    if program is None:
        return None
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    # Before 1.8 there was nothing but what is called legacy now.
    return Variant.NFT if Variant.NFT.value in told else Variant.LEGACY if told.startswith(_STEMS[family]) else None


class IptablesPrograms(programs.AtHome):
    """The programs of one variant, run in the network namespace in which this was made; for one thread at a time."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        self.variant: Final = variant
        self._paths: dict[tuple[Family, str], str | None] = {}

    def has(self, family: Family) -> bool:
        """Whether the programs of a family are installed."""
        return all(self._path(family, action) is not None for action in ("restore", "save"))

    def restore(self, family: Family, text: Iterable[str], *, wait: int, test: bool = False) -> Restored:
        """Feed a text, given in parts, to iptables-restore, which leaves alone what the text does not name.

        wait: seconds to wait for the lock of the (legacy) tables. test: only try whether it would be accepted.
        """
        options = ["--noflush", f"--wait={wait}", *(["--test"] if test else [])]
        done = self._run(family, "restore", options, text)
        if done.returncode == 0:
            return Restored(ok=True)
        words = done.stderr.strip() or f"exit status {done.returncode}"
        found = _LINE.search(words)
        return Restored(
            ok=False,
            message=words,
            line=int(found[1]) if found else None,
            lock_remedy=_lock_remedy(words) if done.returncode == _NO_LOCK else "",
        )

    def save(self, family: Family, table: str) -> str:
        """What is in a table, as iptables-save prints it; empty for a legacy table that nobody has used yet.

        Raises IptablesError.
        """
        if self.variant is Variant.LEGACY and table not in self.legacy_tables(family):
            return ""  # to ask the program would make the table, and each packet would pass it from then on
        done = self._run(family, "save", ["-t", table])
        if done.returncode != 0:
            raise IptablesError(f"{_STEMS[family]}-save -t {table}: {done.stderr.strip() or f'exit status {done.returncode}'}")
        return done.stdout

    def legacy_tables(self, family: Family) -> frozenset[str]:
        """The names of the legacy tables that are in use."""
        with self.at_home():
            try:
                return frozenset(Path("/proc/thread-self/net", _LEGACY_NAMES[family]).read_text().split())
            except OSError:
                return frozenset()

    def _run(
        self, family: Family, action: str, options: Sequence[str], text: Iterable[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        program = self._path(family, action)
        if program is None:
            raise IptablesError(f"{_STEMS[family]}-{action} ({self.variant.value}) is not installed")
        return self.run_program(program, *options, text=text)

    def _path(self, family: Family, action: str) -> str | None:
        if (family, action) not in self._paths:
            self._paths[family, action] = find_program(self.variant, family, action)
        return self._paths[family, action]


def _lock_remedy(words: str) -> str:
    """What to do about the lock of the tables, by what a program says; empty if it says nothing about that."""
    if "can't open lock file" in words:
        # As it says to root of a user namespace: the file is the machine's root's, and nobody need hold the lock.
        return "run as root, or name a lock file for this network in the environment variable XTABLES_LOCKFILE"
    return "end whatever holds the lock of the tables" if "lock" in words else ""


class LegacyTables(Closing):
    """Asks the kernel about the legacy tables of one family in the network namespace in which this was made."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self._socket = socket.socket(family, socket.SOCK_DGRAM)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def info(self, table: str) -> TableInfo | None:
        """How large a table is, in some microseconds; None where there is none."""
        buffer = ctypes.create_string_buffer(table.encode(), _INFO.size)
        length = ctypes.c_uint32(_INFO.size)
        level = _LEVELS[self._family]
        if _libc.getsockopt(self._socket.fileno(), level, _GET_INFO, buffer, ctypes.byref(length)) != 0:
            return None
        *_, entries, size = _INFO.unpack(buffer.raw)
        return TableInfo(entries=entries, size=size)
