"""Kernel settings that a configuration asks for: connection tracking, and how willing the kernel is to kill the daemon."""

import logging
import os
from pathlib import Path
from typing import Final

from kproxy_core.config.kubeproxy import Conntrack
from kproxy_core.kernel import sysctl
from kproxy_core.kernel.errors import KernelError
from kproxy_core.runtime.logs import LOGGER

log = logging.getLogger(LOGGER)

MOST_CONNECTIONS: Final = 1_048_576
"""What kube-proxy caps ``maxPerCore`` times the number of processors at since 1.36."""

_HASHSIZE: Final = Path("/sys/module/nf_conntrack/parameters/hashsize")
_PREFIX: Final = "net.netfilter.nf_conntrack_"


def wanted_settings(conntrack: Conntrack, processors: int) -> dict[str, int]:
    """Return the values asked for, by the names that follow ``nf_conntrack_``. Timeouts in whole seconds; 0 asks for nothing."""
    wanted: dict[str, int] = {}
    if conntrack.max_per_core > 0:
        wanted["max"] = max(min(conntrack.max_per_core * processors, MOST_CONNECTIONS), conntrack.min)
    for name, seconds in (
        ("tcp_timeout_established", conntrack.tcp_established_timeout),
        ("tcp_timeout_close_wait", conntrack.tcp_close_wait_timeout),
        ("udp_timeout", conntrack.udp_timeout),
        ("udp_timeout_stream", conntrack.udp_stream_timeout),
    ):
        if seconds > 0:
            wanted[name] = int(seconds)
    if conntrack.tcp_be_liberal:
        wanted["tcp_be_liberal"] = 1
    return wanted


def apply_conntrack(conntrack: Conntrack) -> None:
    """Set what is asked for and is not so yet. What cannot be set is told, and goes on: containers often may not."""
    for name, value in wanted_settings(conntrack, os.cpu_count() or 1).items():
        full_name = f"{_PREFIX}{name}"
        try:
            current = int(sysctl.read(full_name))
            # A table larger than asked for does no harm, and the host may have its reasons.
            if current == value or (name == "max" and current > value):
                continue
            sysctl.write(full_name, str(value))
            log.info("%s is %d now (it was %d)", full_name, value, current)
            if name == "max":
                _widen(value // 4)
        except (KernelError, ValueError) as error:
            log.warning("%s cannot be set to %d: %s", full_name, value, error)


def _widen(buckets: int) -> None:
    """Give the table as many buckets as suit its new size. The kernel has one table, and lets none but its first namespace."""
    try:
        if int(_HASHSIZE.read_text()) < buckets:
            _HASHSIZE.write_text(str(buckets))
            log.info("conntrack's table has %d buckets now", buckets)
    except (OSError, ValueError) as error:
        log.warning("conntrack's table cannot be given %d buckets (%s): lookups get slower when it is full", buckets, error)


def apply_oom_score(score: int) -> None:
    """Set how willing the kernel is to kill this process when memory runs out, -1000 (never) to 1000."""
    try:
        Path("/proc/self/oom_score_adj").write_text(str(score))
    except OSError as error:
        log.warning("the out-of-memory score cannot be set to %d: %s", score, error.strerror)
