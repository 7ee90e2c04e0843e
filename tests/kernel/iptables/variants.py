"""The kit's groups of tests in one variant of iptables: which one the host uses is told as kubelet tells it."""

from typing import ClassVar

import pytest

from kproxy_core.config.settings import Settings
from kproxy_core.kernel.iptables import Variant, find_program
from kproxy_core.model.addresses import Family
from kproxy_core.plugin.backend import AnyBackend
from kproxy_core.testing.lab import Host
from kproxy_iptables.backend import IptablesBackend
from kproxy_iptables.plugin import features_of

HINT = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n"


def need(variant: Variant) -> None:
    """Skip where the programs of a variant are not installed."""
    if any(find_program(variant, family, "restore") is None for family in Family):
        pytest.skip(f"iptables ({variant.value}) is not installed")


def hint(host: Host, variant: Variant) -> None:
    """Have a host use a variant."""
    program = find_program(variant, Family.IPV4, "restore")
    assert program is not None
    host.run([program, "--noflush"], input=HINT)


class OneVariant:
    """The mode in one variant. Mix it into a group of the kit's tests, and set ``variant``."""

    mode: ClassVar[str] = "iptables"
    variant: ClassVar[Variant]

    @classmethod
    def setup_class(cls) -> None:
        need(cls.variant)
        super().setup_class()  # type: ignore[misc]

    @classmethod
    def make_backend(cls, settings: Settings) -> AnyBackend:
        return IptablesBackend(features_of(settings), cls.variant.value)
