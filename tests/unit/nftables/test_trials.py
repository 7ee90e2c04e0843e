"""What a refused trial says: which feature, why, and what to do (kernels lack features; D36 is one that names none)."""

import errno
import re

import pytest

from kproxy_core.kernel.nftables import CommitResult, OperationError
from kproxy_core.model.addresses import Family
from kproxy_nftables.dataplane import _finding
from kproxy_nftables.trials import Trial, trials

TRIALS = trials(Family)


def refused(number: int) -> CommitResult:
    return CommitResult(done=0, transactions=0, errors=(OperationError(index=0, error=number, text="no such expression"),))


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
def test_d36_a_missing_feature_is_named_with_its_remedy(trial: Trial) -> None:
    finding = _finding(trial, refused(errno.ENOENT))
    assert (finding.name, finding.ok, finding.fatal) == (trial.name, False, trial.fatal)
    assert "no such expression" in finding.message
    assert finding.remedy == trial.remedy
    assert "CONFIG_" in finding.remedy or re.search(r"Linux \d", finding.remedy)


def test_without_rights_the_remedy_is_rights() -> None:
    assert {_finding(trial, refused(errno.EPERM)).remedy for trial in TRIALS} == {
        "run as root, or with CAP_NET_ADMIN in the network namespace's user namespace"
    }


def test_what_works_is_said_to_work() -> None:
    findings = [_finding(trial, CommitResult(done=1, transactions=1)) for trial in TRIALS]
    assert all(finding.ok and not finding.remedy for finding in findings)


def test_what_can_be_done_without() -> None:
    optional = ("local addresses", "tables that no foreign flush removes")
    assert {trial.name for trial in TRIALS if not trial.fatal} == {
        f"{name} ({family.label})" for name in optional for family in Family
    }
