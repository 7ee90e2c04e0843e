"""A mode is put together with what it wants beneath it, from real distributions on the path; what is missing is told."""

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kproxy_core.config.settings import Settings
from kproxy_core.engine.stack import Stack
from kproxy_core.plugin.errors import ConfigError, ContractError
from kproxy_core.plugin.registry import BACKENDS, installed_modes, new_plugin_manager
from kproxy_core.runtime.companions import assemble, clean_up_after, unused_modes
from kproxy_core.runtime.stack import StackedBackend
from kproxy_core.testing.memory_backend import MemoryBackend, MemoryDataplane, MemoryKernel
from kproxy_core.testing.playbook import Playbook
from kproxy_core.testing.sketch import listed, node, service, slice_of

Install = Callable[..., None]

MODE = """
from kproxy_core.plugin.backend import Companion
from kproxy_core.plugin.hookspecs import hookimpl
from kproxy_core.testing.memory_backend import MemoryBackend

chosen = []

@hookimpl
def kproxy_backend(mode, settings):
    if mode != "{name}":
        return None
    chosen.append(settings.mode)
    companions = [Companion(mode=each, purpose=f"serves what {{each}} serves", required=needed) for each, needed in {companions}]
    return MemoryBackend(name="{name}", table="kproxy-{name}", companions=tuple(companions))
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a mode on the path, with companions: a name with a question mark is an optional one's."""
    monkeypatch.syspath_prepend(tmp_path)
    modules = []

    def put(name: str, *companions: str, source: str = MODE) -> None:
        module = f"companions_{name}"
        wanted = [(each.rstrip("?"), not each.endswith("?")) for each in companions]
        (tmp_path / f"{module}.py").write_text(source.format(name=name, companions=wanted))
        metadata = tmp_path / f"{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[{BACKENDS}]\n{name} = {module}\n")
        modules.append(module)

    yield put
    for module in modules:
        sys.modules.pop(module, None)


REAL = frozenset(installed_modes())
"""What is installed beside the tests' own modes."""


def names_of(mode: str, *unusable: str) -> tuple[list[str], tuple[str, ...], list[str]]:
    assembled = assemble(Settings(mode=mode), new_plugin_manager(), lambda backend: backend.name not in unusable)
    modes = assembled.backend.modes if isinstance(assembled.backend, Stack) else [assembled.backend]
    unused = [each.name for each in unused_modes(Settings(mode=mode), assembled.modes) if each.name not in REAL]
    return [each.name for each in modes], assembled.notes, unused


def test_a_mode_without_companions_stays_alone(install: Install) -> None:
    install("alone")
    assert names_of("alone") == (["alone"], (), [])


def test_companions_stand_beneath_all_that_want_them(install: Install) -> None:
    install("top", "low", "middle?")
    install("middle", "low")
    install("low")
    assert names_of("top") == (["top", "middle", "low"], (), [])
    # By this a companion can tell that it is one.
    assert sys.modules["companions_low"].chosen == ["top"]


def test_a_required_companion_that_is_missing_is_named_with_the_command_that_installs_it(install: Install) -> None:
    install("top", "nosuch")
    with pytest.raises(
        ConfigError,
        match="mode top needs mode nosuch beneath it, which serves what nosuch serves and is not installed; "
        "try: pip install kproxy-nosuch",
    ):
        names_of("top")


def test_an_optional_companion_that_is_missing_is_told_and_done_without(install: Install) -> None:
    install("top", "nosuch?")
    note = "nothing serves what nosuch serves: mode nosuch is not installed (pip install kproxy-nosuch)"
    assert names_of("top") == (["top"], (note,), [])


def test_an_optional_companion_that_cannot_work_here_is_told_and_unused(install: Install) -> None:
    install("top", "middle?")
    install("middle", "low")
    install("low")
    note = "nothing serves what middle serves: mode middle cannot work here (kproxy probe middle says why)"
    assert names_of("top", "middle") == (["top"], (note,), ["low", "middle"])


@pytest.mark.parametrize("source", ["raise RuntimeError('half installed')", "raise SystemExit('half installed')"])
def test_a_broken_companion_harms_only_a_mode_that_needs_it(install: Install, source: str) -> None:
    install("top", "broken?")
    install("needy", "broken")
    install("broken", source=source)
    names, notes, _ = names_of("top")
    assert names == ["top"]
    assert len(notes) == 1
    assert "nothing serves what broken serves" in notes[0]
    assert "half installed" in notes[0]
    with pytest.raises((ContractError, SystemExit), match="half installed"):
        names_of("needy")


def test_an_optional_companion_whose_own_companion_is_missing_is_left_out(install: Install) -> None:
    install("top", "middle?")
    install("middle", "nosuch")
    names, notes, unused = names_of("top")
    assert (names, unused) == (["top"], ["middle"])
    assert "pip install kproxy-nosuch" in notes[0]


def test_every_other_mode_may_have_left_something_and_one_that_does_not_load_is_passed_over(install: Install) -> None:
    install("chosen")
    install("former")
    install("broken", source="raise SystemExit('half installed')")
    assert names_of("chosen") == (["chosen"], (), ["former"])


def test_modes_that_want_each_other_are_a_fault_of_theirs(install: Install) -> None:
    install("chicken", "egg")
    install("egg", "chicken")
    with pytest.raises(ContractError, match="chicken above egg above chicken"):
        names_of("chicken")


def test_two_modes_of_one_name_cannot_be_told_apart() -> None:
    with pytest.raises(ContractError, match="two modes of one name: memory, memory"):
        StackedBackend([MemoryBackend(), MemoryBackend()])


def test_what_an_unused_mode_has_left_is_removed_and_a_stubborn_one_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(MemoryBackend):
        def open(self) -> MemoryDataplane:
            raise OSError("not now")

    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel)) >> listed(
        node("192.0.2.1"), service("n/a", "10.96.0.1"), slice_of("n/a", "10.244.0.1")
    )
    play.close()
    assert kernel.ours
    with caplog.at_level(logging.INFO):
        clean_up_after([Stubborn(kernel, name="stubborn"), MemoryBackend(kernel)])
    assert kernel.tables == {}
    messages = [record.getMessage() for record in caplog.records]
    assert "what mode stubborn may have left cannot be removed: not now" in messages
    assert any(message.startswith("removed what mode memory has left: table kproxy-memory with") for message in messages)
