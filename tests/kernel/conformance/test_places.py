"""Where the kit says that everything is in a lab, without building one, is where the lab has it."""

import pytest

from kproxy_core.testing.conformance.places import Places
from kproxy_core.testing.lab import Lab

pytestmark = pytest.mark.kernel


def test_hosts_have_the_addresses_that_the_kit_says(lab: Lab) -> None:
    places = Places(lab.plan)
    assert {name: (pair.ipv4, pair.ipv6) for name, pair in places.hosts.items()} == {
        name: (host.ipv4, host.ipv6) for name, host in lab.hosts.items()
    }
    owners = places.owners()
    assert {address: owners.get(address) for host in lab.hosts.values() for address in host.addresses} == {
        address: name for name, host in lab.hosts.items() for address in host.addresses
    }
    assert {name: places.on[name] for name in lab.pods} == {name: host.pod.on for name, host in lab.pods.items() if host.pod}
