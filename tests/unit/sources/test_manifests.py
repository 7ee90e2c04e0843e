"""The manifest source on real files: loading, following changes, half-written and broken files, swapped directories."""

import io
import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kproxy_core.model.changes import Change, Replaced
from kproxy_core.model.diagnostics import Diagnostic
from kproxy_core.model.snapshot import NEEDED_BEFORE_FIRST_SYNC, Kind
from kproxy_core.plugin.errors import ConfigError
from kproxy_core.sources import manifests
from kproxy_core.sources.manifests import SETTLE, ManifestSource

PATIENCE = 10.0
"""Seconds after which a change that should be seen is given up; far more than it takes."""


def service(name: str, cluster_ip: str = "10.96.0.1") -> str:
    return (
        f"apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{clusterIP: {cluster_ip}, ports: [{{port: 80}}]}}\n"
    )


NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: here}\n"

Open = Callable[[Path | str], "Followed"]


class Followed:
    """A source and what it has told so far."""

    def __init__(self, path: str) -> None:
        self.source = ManifestSource(path)
        self.listed: dict[Kind, Replaced] = {}

    def take(self, changes: tuple[Change, ...]) -> tuple[Change, ...]:
        for change in changes:
            assert isinstance(change, Replaced)
            self.listed[change.kind] = change
        return changes

    def load(self) -> "Followed":
        self.take(self.source.load())
        return self

    def names(self, kind: Kind = Kind.SERVICE) -> list[str]:
        return [str(found.name).removeprefix("default/") for found in self.listed[kind].objects]

    def addresses(self) -> list[str]:
        return [str(a) for found in self.listed[Kind.SERVICE].objects for a in found.cluster_ips]  # type: ignore[union-attr]

    def told(self) -> tuple[Diagnostic, ...]:
        return self.listed[Kind.SERVICE].diagnostics

    def until(self, condition: Callable[[], bool]) -> None:
        """Poll as the daemon does: when the descriptor is readable, and when the source says so, until the condition holds."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0, f"not seen within {PATIENCE} s; last: {self.listed}"
            # Without inotify the daemon looks each second; a test need not wait that long.
            wait = min(left, 0.02 if self.source.wake_after is None else self.source.wake_after)
            descriptors = [self.source.fileno()] if self.source.fileno() >= 0 else []
            select.select(descriptors, [], [], wait)
            self.take(self.source.poll())


@pytest.fixture
def follow() -> Iterator[Open]:
    opened: list[Followed] = []

    def open_source(path: Path | str) -> Followed:
        opened.append(Followed(str(path)))
        return opened[-1].load()

    yield open_source
    for followed in opened:
        followed.source.close()
        assert followed.source.fileno() == -1


@pytest.fixture(params=["inotify", "polling"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With inotify, and as on a system that gives no more watches."""
    if request.param == "polling":

        def refuse(_: Path) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(manifests, "DirectoryWatch", refuse)


def put_in_place(path: Path, text: str) -> None:
    """Replace a file atomically."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text)
    draft.rename(path)


def test_a_directory_its_files_in_order_and_nothing_else(tmp_path: Path, follow: Open) -> None:
    (tmp_path / "b.yaml").write_text(service("b"))
    (tmp_path / "a.yml").write_text(service("a") + "---\n" + service("a2"))
    (tmp_path / "c.json").write_text(
        '{"apiVersion":"v1","kind":"Service","metadata":{"name":"c"},"spec":{"clusterIP":"10.96.0.3","ports":[{"port":80}]}}'
    )
    (tmp_path / ".hidden.yaml").write_text(service("hidden"))
    (tmp_path / "notes.txt").write_text("not yaml: [")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "d.yaml").write_text(service("d"))
    (tmp_path / "folder.yaml").mkdir()
    followed = follow(tmp_path)
    assert followed.names() == ["a", "a2", "b", "c"]
    assert followed.told() == ()
    assert set(followed.listed) == NEEDED_BEFORE_FIRST_SYNC, "kinds that are not there are not claimed to be listed"
    assert followed.source.poll() == ()
    assert followed.source.wake_after is None


def test_a_single_file_and_an_empty_directory(tmp_path: Path, follow: Open) -> None:
    (tmp_path / "cluster").write_text(service("a") + "---\n" + NODE)
    followed = follow(tmp_path / "cluster")
    assert (followed.names(), followed.names(Kind.NODE)) == (["a"], ["here"])
    (tmp_path / "empty").mkdir()
    assert follow(tmp_path / "empty").names() == []


def test_standard_input_and_pipes_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: Open) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(service("piped").encode())))
    followed = follow("-")
    assert (followed.names(), followed.source.poll(), followed.source.fileno()) == (["piped"], (), -1)
    reader, writer = os.pipe()
    os.write(writer, service("fd").encode())
    os.close(writer)
    followed = follow(f"/dev/fd/{reader}")
    os.close(reader)
    assert (followed.names(), followed.source.poll(), followed.source.fileno()) == (["fd"], (), -1)


@pytest.mark.parametrize("content", [b"", b" \n\n"])
def test_empty_standard_input_is_a_failure_and_no_empty_cluster(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    with pytest.raises(ConfigError, match="standard input: it was empty"):
        ManifestSource("-").load()


def test_what_cannot_be_opened_is_the_operators_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        ManifestSource(str(tmp_path / "nowhere.yaml")).load()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a: 1\nb: [\n")))
    with pytest.raises(ConfigError, match="standard input, line 3"):
        ManifestSource("-").load()


@pytest.mark.usefixtures("either_way")
def test_changed_new_and_removed_files_are_seen(tmp_path: Path, follow: Open) -> None:
    (tmp_path / "a.yaml").write_text(service("a"))
    followed = follow(tmp_path)
    (tmp_path / "a.yaml").write_text(service("a", "10.96.0.2"))
    followed.until(lambda: followed.addresses() == ["10.96.0.2"])
    (tmp_path / "b.yaml").write_text(service("b"))
    followed.until(lambda: followed.names() == ["a", "b"])
    put_in_place(tmp_path / "b.yaml", service("b2"))
    followed.until(lambda: followed.names() == ["a", "b2"])
    (tmp_path / "a.yaml").unlink()
    followed.until(lambda: followed.names() == ["b2"])
    (tmp_path / "b.yaml").rename(tmp_path / "b.txt")
    followed.until(lambda: followed.names() == [])


@pytest.mark.usefixtures("either_way")
def test_a_single_file_is_followed_through_replacement_and_absence(tmp_path: Path, follow: Open) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(service("a"))
    (tmp_path / "other.yaml").write_text(service("other"))
    followed = follow(path)
    put_in_place(path, service("b"))
    followed.until(lambda: followed.names() == ["b"])
    path.unlink()
    followed.until(lambda: bool(followed.told()))
    assert followed.names() == ["b"], "its last content stays in force"
    assert followed.source.wake_after is None
    path.write_text(service("c"))
    followed.until(lambda: followed.names() == ["c"])
    assert followed.told() == ()


@pytest.mark.usefixtures("either_way")
def test_a_swap_behind_a_symbolic_link_as_the_kubelet_does_it(tmp_path: Path, follow: Open) -> None:
    def publish(version: str, *names: str) -> None:
        (tmp_path / version).mkdir()
        for name in names:
            (tmp_path / version / f"{name}.yaml").write_text(service(f"{name}-{version.strip('.')}"))
            if not (tmp_path / f"{name}.yaml").is_symlink():
                (tmp_path / f"{name}.yaml").symlink_to(f"..data/{name}.yaml")
        (tmp_path / "..data_tmp").symlink_to(version)
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")

    publish("..1", "a", "b")
    followed = follow(tmp_path)
    assert followed.names() == ["a-1", "b-1"]
    publish("..2", "a", "b")
    followed.until(lambda: followed.names() == ["a-2", "b-2"])
    publish("..3", "a")
    (tmp_path / "b.yaml").unlink()
    followed.until(lambda: followed.names() == ["a-3"])


@pytest.mark.usefixtures("either_way")
def test_the_whole_directory_is_replaced(tmp_path: Path, follow: Open) -> None:
    live, draft = tmp_path / "live", tmp_path / "draft"
    live.mkdir()
    (live / "a.yaml").write_text(service("a"))
    followed = follow(live)
    draft.mkdir()
    (draft / "b.yaml").write_text(service("b"))
    live.rename(tmp_path / "old")
    followed.until(lambda: bool(followed.told()))
    assert followed.names() == ["a"], "its last content stays in force"
    draft.rename(live)
    followed.until(lambda: followed.names() == ["b"])
    assert followed.told() == ()
    (live / "c.yaml").write_text(service("c"))
    followed.until(lambda: followed.names() == ["b", "c"])


@pytest.mark.usefixtures("either_way")
def test_a_half_written_file_is_not_read_before_it_settles(tmp_path: Path, follow: Open) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(service("a") + "---\n" + service("b"))
    followed = follow(tmp_path)
    with path.open("w") as file:
        file.write(service("a", "10.96.0.9"))
        file.flush()
        assert followed.source.poll() == ()
        assert followed.source.wake_after is not None
        assert 0 < followed.source.wake_after <= SETTLE
        file.write("---\n" + service("b"))
    followed.until(lambda: followed.addresses()[0] == "10.96.0.9")
    assert followed.names() == ["a", "b"]
    assert followed.source.wake_after is None


def test_a_finished_file_is_read_at_once(tmp_path: Path, follow: Open) -> None:
    followed = follow(tmp_path)
    (tmp_path / "a.yaml").write_text(service("a"))
    followed.take(followed.source.poll())
    assert followed.names() == ["a"]
    put_in_place(tmp_path / "a.yaml", service("b"))
    followed.take(followed.source.poll())
    assert followed.names() == ["b"]


def test_a_file_that_an_editor_moves_away_for_a_moment_is_not_gone(tmp_path: Path, follow: Open) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(service("a"))
    followed = follow(tmp_path)
    path.rename(tmp_path / "a.yaml~")
    assert followed.source.poll() == ()
    path.write_text(service("a2"))
    followed.take(followed.source.poll())
    assert followed.names() == ["a2"]


@pytest.mark.usefixtures("either_way")
def test_the_last_good_content_of_a_broken_file_stays_in_force(tmp_path: Path, follow: Open) -> None:
    (tmp_path / "a.yaml").write_text(service("a"))
    (tmp_path / "b.yaml").write_text(service("b"))
    followed = follow(tmp_path)
    (tmp_path / "a.yaml").write_text(service("a", "10.96.0.9") + "oops: [\n")
    followed.until(lambda: bool(followed.told()))
    (told,) = followed.told()
    assert (told.subject, told.field) == ("file a.yaml", "line 6")
    assert "last good content" in told.message
    assert (followed.names(), followed.addresses()[0]) == (["a", "b"], "10.96.0.1")
    (tmp_path / "a.yaml").write_text(service("a", "10.96.0.9"))
    followed.until(lambda: followed.addresses()[0] == "10.96.0.9")
    assert followed.told() == ()


@pytest.mark.usefixtures("either_way")
def test_the_lists_are_not_complete_while_a_file_has_never_been_read(tmp_path: Path, follow: Open) -> None:
    (tmp_path / "a.yaml").write_text("a:\n\tb: 1\n")
    (tmp_path / "b.yaml").write_text(service("b"))
    (tmp_path / "c.yaml").symlink_to(tmp_path / "nowhere.yaml")
    followed = follow(tmp_path)
    assert (followed.names(), followed.source.complete) == (["b"], False)
    assert [(d.subject, d.field) for d in followed.source.unread] == [("file a.yaml", "line 2"), ("file c.yaml", "")]
    assert [("tab" in d.message, "left out" in d.message, d.remedy) for d in followed.told()] == [
        (True, False, "indent with spaces only"),
        (False, False, "restore that file, or remove the link"),
    ]
    put_in_place(tmp_path / "a.yaml", service("a"))
    followed.until(lambda: followed.names() == ["a", "b"])
    assert not followed.source.complete
    (tmp_path / "c.yaml").unlink()
    followed.until(lambda: followed.source.complete)
    assert followed.told() == ()


def test_a_broken_file_that_comes_later_is_left_out_and_told(tmp_path: Path, follow: Open) -> None:
    (tmp_path / "b.yaml").write_text(service("b"))
    followed = follow(tmp_path)
    put_in_place(tmp_path / "a.yaml", "a: [\n")
    followed.until(lambda: bool(followed.told()))
    assert followed.source.complete
    assert [(d.subject, "left out" in d.message) for d in followed.told()] == [("file a.yaml", True)]


def test_what_the_system_refuses_is_tried_again_without_a_change_of_the_file(
    tmp_path: Path, follow: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.yaml").write_text(service("a"))
    refusals = iter([OSError(24, "Too many open files")] * 2)
    read = Path.read_bytes

    def refuse_twice(path: Path) -> bytes:
        refusal = next(refusals, None)
        if refusal is not None:
            raise refusal
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse_twice)
    followed = follow(tmp_path)
    assert [d.message for d in followed.source.unread] == ["cannot be read: Too many open files"]
    followed.until(lambda: followed.source.complete)
    assert followed.names() == ["a"]


@pytest.mark.usefixtures("either_way")
def test_a_link_that_leads_nowhere_any_more_keeps_what_it_led_to(tmp_path: Path, follow: Open) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(service("a"))
    (tmp_path / "a.yaml").symlink_to(elsewhere)
    followed = follow(tmp_path)
    elsewhere.unlink()
    followed.until(lambda: bool(followed.told()))
    (told,) = followed.told()
    assert (told.subject, "last good content" in told.message) == ("file a.yaml", True)
    assert followed.names() == ["a"]
    elsewhere.write_text(service("b"))
    followed.until(lambda: followed.names() == ["b"])
    assert followed.told() == ()


def test_what_is_told_of_objects_names_the_file_and_the_line(tmp_path: Path, follow: Open) -> None:
    nameless = "apiVersion: v1\nkind: Service\n"
    kindless = "# what is this?\nmetadata: {name: x}\n"
    (tmp_path / "a.yaml").write_text(f"{service('a')}---\n{nameless}---\n{kindless}")
    (tmp_path / "b.yaml").write_text(
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Servce\n- apiVersion: v1\n  kind: List\n  items: [7]\n"
    )
    (tmp_path / "c.json").write_text('{"apiVersion": "v1", "kind": "List", "items": [{"kind": "Service", "apiVersion": "v2"}]}')
    (tmp_path / "d.yaml").write_text(service("a"))
    assert [(d.place, d.subject) for d in follow(tmp_path).told()] == [
        ("a.yaml:6", "Service without a name"),
        ("a.yaml:10", "object x"),
        ("b.yaml:4", "Servce without a name"),
        ("b.yaml:6, items[0]", "object"),
        ("c.json:1, items[0]", "Service without a name"),
        ("d.yaml:1", "Service default/a"),
    ]


def test_a_second_object_without_a_separator_is_no_mixture_of_both(tmp_path: Path, follow: Open) -> None:
    (tmp_path / "a.yaml").write_text(service("a"))
    followed = follow(tmp_path)
    put_in_place(tmp_path / "a.yaml", service("a") + service("b"))
    followed.until(lambda: bool(followed.told()))
    (told,) = followed.told()
    assert (told.field, told.remedy) == ("line 5", "write a line with --- between the two objects")
    assert followed.names() == ["a"]


def test_duplicate_keys_are_told_with_file_and_line(tmp_path: Path, follow: Open) -> None:
    (tmp_path / "a.yaml").write_text(service("a") + "kind: Service\n")
    assert [(d.subject, d.field) for d in follow(tmp_path).told()] == [("file a.yaml", "line 5")]


def test_one_object_in_two_files_the_first_by_name_wins_and_the_heir_takes_over(tmp_path: Path, follow: Open) -> None:
    (tmp_path / "b.yaml").write_text(service("web", "10.96.0.2"))
    (tmp_path / "a.yaml").write_text(service("web", "10.96.0.1"))
    followed = follow(tmp_path)
    assert followed.addresses() == ["10.96.0.1"]
    assert ["b.yaml" in d.message for d in followed.told()] == [True]
    (tmp_path / "a.yaml").unlink()
    followed.until(lambda: followed.addresses() == ["10.96.0.2"])
    assert followed.told() == ()


def test_a_node_that_goes_is_listed_as_gone(tmp_path: Path, follow: Open) -> None:
    (tmp_path / "node.yaml").write_text(NODE)
    followed = follow(tmp_path)
    assert followed.names(Kind.NODE) == ["here"]
    (tmp_path / "node.yaml").unlink()
    followed.until(lambda: followed.names(Kind.NODE) == [])


def test_only_kinds_that_changed_are_listed_again(tmp_path: Path, follow: Open) -> None:
    (tmp_path / "a.yaml").write_text(service("a"))
    (tmp_path / "node.yaml").write_text(NODE)
    followed = follow(tmp_path)
    (tmp_path / "node.yaml").write_text(NODE.replace("{name: here}", "{name: here, labels: {topology.kubernetes.io/zone: east}}"))
    (tmp_path / "a.yaml").touch()
    seen: list[Kind] = []

    def node_seen() -> bool:
        seen.extend(change.kind for change in followed.take(followed.source.poll()) if isinstance(change, Replaced))
        return bool(seen)

    followed.until(node_seen)
    assert seen == [Kind.NODE]


def test_what_is_no_regular_file_is_never_read(tmp_path: Path, follow: Open) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").symlink_to("/dev/zero")
    (tmp_path / "c.yaml").mkdir()
    (tmp_path / "d.yaml").write_text(service("d"))
    assert follow(tmp_path).names() == ["d"]
