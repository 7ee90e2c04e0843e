"""Manifests are followed by a thread of their own: what changes reaches the daemon's loop, whatever goes wrong in between."""

import select
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy_core.cli.sources import FollowedManifests
from kproxy_core.model.changes import Change, Replaced
from kproxy_core.model.snapshot import Kind
from kproxy_core.plugin.errors import ConfigError

SERVICE = """
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: default}}
spec: {{clusterIP: 10.96.0.{number}, ports: [{{port: 80}}]}}
"""


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[FollowedManifests]:
    """A folder with one Service, followed."""
    (tmp_path / "a.yaml").write_text(SERVICE.format(name="a", number=1))
    source = FollowedManifests(str(tmp_path))
    yield source
    source.close()


def names(changes: tuple[Change, ...]) -> list[str]:
    """The names of the Services in the last list of them."""
    lists = [change for change in changes if isinstance(change, Replaced) and change.kind is Kind.SERVICE]
    return sorted(service.name.name for service in lists[-1].objects if not isinstance(service.name, str))


def next_changes(source: FollowedManifests) -> tuple[Change, ...]:
    """Wait until there is something, and take it."""
    ready, _, _ = select.select([source.fileno()], [], [], 60)
    assert ready, "nothing came"
    return source.poll()


def test_everything_is_there_at_once(followed: FollowedManifests, tmp_path: Path) -> None:
    assert names(followed.poll()) == ["a"]
    assert followed.poll() == ()
    assert followed.name == f"manifests:{tmp_path}"


def test_changes_come_by_themselves(followed: FollowedManifests, tmp_path: Path) -> None:
    followed.poll()
    (tmp_path / "b.yaml").write_text(SERVICE.format(name="b", number=2))
    assert names(next_changes(followed)) == ["a", "b"]
    (tmp_path / "a.yaml").unlink()
    assert names(next_changes(followed)) == ["b"]


def test_a_file_behind_a_link_is_followed_as_well(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.yaml"
    elsewhere.write_text(SERVICE.format(name="a", number=1))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link.yaml").symlink_to(elsewhere)
    source = FollowedManifests(str(folder))
    try:
        assert names(source.poll()) == ["a"]
        elsewhere.write_text(SERVICE.format(name="changed", number=1))
        assert names(next_changes(source)) == ["changed"]
    finally:
        source.close()


def test_a_failure_to_look_is_logged_once_and_got_over(
    followed: FollowedManifests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    followed.poll()
    look = followed._source.poll
    failures = threading.Semaphore(0)
    left = iter(range(2))

    def fail_twice() -> tuple[Change, ...]:
        if next(left, None) is not None:
            failures.release()
            raise RuntimeError("no look")
        return look()

    monkeypatch.setattr(followed._source, "poll", fail_twice)
    (tmp_path / "b.yaml").write_text(SERVICE.format(name="b", number=2))
    assert names(next_changes(followed)) == ["a", "b"]
    assert failures.acquire(timeout=60)
    assert failures.acquire(timeout=60)
    assert [record.getMessage().partition(" cannot")[2] for record in caplog.records] == [
        " be followed, and will be tried again; what was read stays in force"
    ]


def test_closing_ends_the_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    source = FollowedManifests(str(tmp_path))
    assert threading.active_count() == before + 1
    source.close()
    assert threading.active_count() == before


def test_nothing_to_read_is_told_at_once(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(ConfigError, match="No such file or directory"):
        FollowedManifests(str(tmp_path / "absent"))
    assert threading.active_count() == before


def test_nothing_is_delivered_before_every_file_has_been_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    (tmp_path / "a.yaml").write_text(SERVICE.format(name="a", number=1))
    (tmp_path / "b.yaml").write_text("a:\n\tb: 1\n")
    source = FollowedManifests(str(tmp_path))
    try:
        (told,) = caplog.records
        assert told.levelname == "ERROR"
        for part in ("file b.yaml: line 2", "indent with spaces only", "the kernel keeps what it has"):
            assert part in told.getMessage()
        assert source.poll() == ()
        (tmp_path / "b.yaml").write_text(SERVICE.format(name="b", number=2))
        lists = next_changes(source)
        assert names(lists) == ["a", "b"], "all that it waited for comes at once"
        assert {change.kind for change in lists if isinstance(change, Replaced)} == {Kind.SERVICE, Kind.ENDPOINT_SLICE}
        assert len(lists) == 2, "the last list of each kind"
        (tmp_path / "b.yaml").write_text("a: [\n")
        assert names(next_changes(source)) == ["a", "b"], "what has been read once is kept, and delivered on"
    finally:
        source.close()
    assert [record.getMessage().endswith("every manifest has been read") for record in caplog.records] == [False, True]


@pytest.mark.parametrize("nothing_to_lose", [False, True])
def test_what_can_be_read_is_served_beside_what_cannot_if_the_kernel_has_nothing_to_lose(
    tmp_path: Path, nothing_to_lose: bool, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.yaml").write_text(SERVICE.format(name="a", number=1))
    (tmp_path / "broken.yaml").write_text("kind: [\n")
    source = FollowedManifests(str(tmp_path), nothing_to_lose=lambda: nothing_to_lose)
    try:
        served = source.poll()
        assert (names(served) if served else []) == (["a"] if nothing_to_lose else [])
        told = "the others are served" if nothing_to_lose else "the kernel keeps what it has"
        assert [record.getMessage().rpartition(", ")[2] for record in caplog.records] == [told]
        (tmp_path / "broken.yaml").write_text(SERVICE.format(name="b", number=2))
        assert names(next_changes(source)) == ["a", "b"]
    finally:
        source.close()
