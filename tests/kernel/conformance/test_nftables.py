"""The conformance of the nftables mode."""

import pytest

from kproxy_core.testing.conformance.plugin import Conformance

pytestmark = pytest.mark.kernel


class TestNftables(Conformance):
    mode = "nftables"
