"""The bases for modes that feed a program with text, with the shell for a program and a folder for a kernel."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kproxy_core.kernel.text import FedProgram
from kproxy_core.model.state import NodeContext, ServicePort
from kproxy_core.plugin.backend import Leftovers
from kproxy_core.plugin.errors import ApplyError, UnsupportedError
from kproxy_core.plugin.text import TextBackend
from kproxy_core.program.delta import Delta, diff
from kproxy_core.program.digest import Digested, digest
from kproxy_core.program.program import Fragment, Program


class Folder(FedProgram[str, str]):
    """Files are the objects."""

    program, feed, check, clearance = "sh", ("-e", "-s"), ("-n", "-s"), "rm *"

    def read(self) -> Program[str, str]:
        return Program(common={name: self.ask("-c", f"cat {name}") for name in self.ask("-c", "ls").split()})

    def leftovers(self) -> Leftovers:
        return Leftovers(lines=tuple(self.ask("-c", "ls").split()))


class Files(TextBackend[str, str]):
    """A mode that writes files."""

    name = "files"
    dataplane = Folder
    remedy = "learn to write"
    capabilities: ClassVar[frozenset[Any]] = frozenset()
    line: ClassVar[str] = "printf %s"

    def compile(self, port: ServicePort, node: NodeContext, previous: Any, fresh_id: int) -> Fragment[str, str]:
        return Fragment()

    def scaffold(self, node: NodeContext) -> Mapping[str, str]:
        return {"node": "here"}

    def plan(self, before: Program[str, str], delta: Delta[str, str]) -> Sequence[str]:
        return [*(f"rm {key}" for key in delta.gone), *(f"{self.line} '{value}' > {key}" for key, value in delta.made.items())]


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    monkeypatch.chdir(tmp_path)
    with Files().open() as opened:
        assert isinstance(opened, Folder)
        yield opened


def test_a_plan_is_fed_and_read_back(kernel: Folder) -> None:
    mode, wanted = Files(), {"a": "1", "b": "2"}
    done = kernel.apply(mode.plan(Program(), Delta(added=wanted)))
    assert (done.done, done.failures) == (2, ())
    assert kernel.read().common == wanted
    done = kernel.apply(mode.plan(Program(common=wanted), diff(wanted, {"b": "3", "c": "4"})))
    assert done.done == 4
    assert mode.canonical(kernel.read()) == {"b": "3", "c": "4"}


def test_what_is_refused_is_told(kernel: Folder) -> None:
    (failure,) = kernel.apply(["no-such-command-at-all"]).failures
    assert "not found" in failure.message
    assert not failure.retryable
    done = kernel.apply(["rm gone"])
    assert done.unchanged
    assert [each.retryable for each in done.failures] == [True]


def test_silence_of_a_program_that_fails_is_told_by_its_status(kernel: Folder) -> None:
    assert [each.message for each in kernel.apply(["exit 3"]).failures] == ["exit status 3"]


def test_what_is_not_there_is_empty_and_what_fails_is_an_error(kernel: Folder) -> None:
    assert kernel.ask("-c", "cat nothing") == ""
    with pytest.raises(ApplyError, match="sh -c exit 3: exit status 3"):
        kernel.ask("-c", "exit 3")


def test_cleanup_removes_what_is_left_and_says_so(kernel: Folder) -> None:
    kernel.apply(["touch a b"])
    assert kernel.cleanup().lines == ("a", "b")
    assert kernel.cleanup().lines == ()


def test_probe_has_the_scaffold_looked_at_and_changes_nothing(kernel: Folder) -> None:
    assert [(each.ok, each.message) for each in Files().probe().findings] == [(True, "works")]
    assert not kernel.leftovers()


def test_probe_says_what_is_wrong_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Files, "line", "if")
    (finding,) = Files().probe().findings
    assert not finding.ok
    assert "yntax error" in finding.message
    assert finding.remedy == "learn to write"


def test_a_program_that_is_not_installed_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folder, "program", "no-such-program-at-all")
    with pytest.raises(UnsupportedError, match="the program no-such-program-at-all is not installed"):
        Folder()
    assert not Files().probe().usable


def test_rendering_is_what_would_be_fed_where_nothing_is() -> None:
    assert Files().render(Program(common={"a": "1"})) == "printf %s '1' > a"


def test_a_change_is_gone_by_its_old_value_and_made_by_its_new_one() -> None:
    delta = diff({"a": 1, "b": 2}, {"b": 3, "c": 4})
    assert (delta.gone, delta.made) == ({"a": 1, "b": 2}, {"c": 4, "b": 3})


def test_a_text_is_known_by_its_digest_alone() -> None:
    told = Digested("ip saddr 10.0.0.1 drop")
    assert told == Digested("in other words", digest(told.text))
    assert told != Digested("ip saddr 10.0.0.2 drop")
    assert len({told, Digested("", told.digest)}) == 1
