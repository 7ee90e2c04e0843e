"""The laws are worth something: modes that break them are told so."""

from typing import Any

import pytest

from kproxy_core.plugin.backend import Leftovers
from kproxy_core.testing.conformance.laws import CostLaws, EndpointCost, NeighbourLaws, OrderLaws
from kproxy_core.wire.nft_operations import delete
from kproxy_nftables.dataplane import NftablesDataplane

pytestmark = pytest.mark.kernel


class Breaking(NeighbourLaws, CostLaws, OrderLaws):
    """Not collected by its name: run by hand below."""

    mode = "nftables"
    endpoint_cost = EndpointCost(added=1, removed=1, replaced=1)
    restart_cost = 2
    stories = 1


class TestLawsCanFail:
    @classmethod
    def setup_class(cls) -> None:
        Breaking.setup_class()

    @classmethod
    def teardown_class(cls) -> None:
        Breaking.teardown_class()

    @pytest.fixture
    def laws(self) -> Breaking:
        made = Breaking()
        made.setup_method()
        return made

    def test_a_cleanup_that_removes_nothing(self, laws: Breaking, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(NftablesDataplane, "cleanup", lambda dataplane: dataplane.leftovers())
        with pytest.raises(AssertionError):
            laws.test_a_cleanup_leaves_nothing()

    def test_a_cleanup_that_removes_what_others_have(self, laws: Breaking, monkeypatch: pytest.MonkeyPatch) -> None:
        right = NftablesDataplane.cleanup

        def everything(dataplane: Any) -> Leftovers:
            found = right(dataplane)
            assert dataplane._socket.commit([delete(table) for table in dataplane._socket.tables()]).ok
            return found

        monkeypatch.setattr(NftablesDataplane, "cleanup", everything)
        with pytest.raises(AssertionError):
            laws.test_what_others_have_is_not_touched("nft")

    def test_a_change_that_costs_more_than_is_stated(self, laws: Breaking) -> None:
        with pytest.raises(AssertionError):
            laws.test_one_endpoint_costs_the_same_at_any_size()

    def test_a_restart_that_makes_things_anew(self, laws: Breaking, monkeypatch: pytest.MonkeyPatch) -> None:
        right = NftablesDataplane.read

        def forgetful(dataplane: Any) -> Any:
            if not dataplane._read_at:  # what a fresh process finds first
                dataplane.cleanup()
            return right(dataplane)

        monkeypatch.setattr(NftablesDataplane, "read", forgetful)
        with pytest.raises(AssertionError):
            laws.test_a_second_sync_and_a_restart_are_empty()

    def test_a_sound_mode_is_told_nothing(self, laws: Breaking) -> None:
        laws.test_a_second_sync_and_a_restart_are_empty()
        laws.test_a_cleanup_leaves_nothing()
