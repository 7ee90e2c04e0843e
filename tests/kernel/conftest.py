"""A lab for each module, and a fresh one for tests that change it."""

from collections.abc import Iterator

import pytest

from kproxy_core.testing.lab import Lab, can_build


def _lab() -> Iterator[Lab]:
    if not can_build():
        pytest.skip("no privilege to make network namespaces (run as root, or: python -m kproxy_core.testing.lab pytest)")
    with Lab() as built:
        yield built


@pytest.fixture(scope="module")
def shared_lab() -> Iterator[Lab]:
    """A lab that the tests of a module share; they leave it as they found it."""
    yield from _lab()


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A lab of one's own."""
    yield from _lab()
