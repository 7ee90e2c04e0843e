"""What is committed speaks of the project alone, and the folders keep their forms."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Whoever cites a new site adds it here; indexes and mirrors of packages have no place in the repository.
CITED_SITES = {
    "datatracker.ietf.org",
    "docs.kernel.org",
    "git.kernel.org",
    "github.com",
    "kproxy.dev",
    "kubernetes.io",
    "packaging.python.org",
    "pluggy.readthedocs.io",
    "www.apache.org",
    "www.kernel.org",
    "www.rfc-editor.org",
}
FOR_EXAMPLES = re.compile(r"(.+\.)?(example|invalid|test|localhost|svc|example\.(com|net|org))|\[?[\d.:a-fA-F]+\]?|.*[{<$].*")
SITE = re.compile(r"\bhttps?://([^\s/:\"'`)>]+|\[[^\]]+\])")
SOMEBODYS_MACHINE = re.compile(r"(?<![\w.~$}])/(?:root|home|Users|workspace)/\w|\b(?:index-url|find-links)\b")


def tracked() -> list[Path]:
    """The files of the repository: what git tracks or would track, or everything where there is no git."""
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return sorted(path for path in ROOT.rglob("*") if path.is_file() and not {".git", ".nox", ".venv"} & set(path.parts))
    return sorted(ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file())


def texts() -> Iterator[tuple[Path, str]]:
    """The files that hold text, but for this one."""
    for path in tracked():
        content = path.read_bytes()
        if b"\0" not in content and path != Path(__file__):
            yield path.relative_to(ROOT), content.decode()


def strange_sites(text: str) -> list[str]:
    """The web sites that a text names and that nobody has allowed."""
    return sorted({site for site in SITE.findall(text) if site not in CITED_SITES and not FOR_EXAMPLES.fullmatch(site)})


def test_no_file_names_a_folder_or_package_index_of_somebodys_machine() -> None:
    found = [f"{path}: {match.group()}" for path, text in texts() for match in SOMEBODYS_MACHINE.finditer(text)]
    assert found == []


def test_only_known_sites_are_cited() -> None:
    found = {str(path): strange_sites(text) for path, text in texts() if path.name != "LICENSE"}
    assert {path: sites for path, sites in found.items() if sites} == {}


@pytest.mark.parametrize("text", ["see /home/ann/kproxy", "cd /root/kproxy", "pip install --index-url X", "extra-index-url = X"])
def test_a_machines_own_names_are_seen(text: str) -> None:
    assert SOMEBODYS_MACHINE.search(text)


@pytest.mark.parametrize("text", ["docs/home/x", "$HOME/root/x", "https://kubernetes.io/home/x", "/run/kproxy", "/etc/kproxy"])
def test_names_that_every_machine_has_are_fine(text: str) -> None:
    assert not SOMEBODYS_MACHINE.search(text)


def test_an_unknown_site_is_seen() -> None:
    assert strange_sites("https://mirror.corp.internal/simple and http://10.0.0.1:80/ and https://kubernetes.io/docs") == [
        "mirror.corp.internal"
    ]


def test_no_large_file_is_committed() -> None:
    assert [str(path.relative_to(ROOT)) for path in tracked() if path.stat().st_size > 1_000_000] == []


def test_changelog_fragments_are_named_by_issue_and_type() -> None:
    types = [kind["directory"] for kind in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]]
    form = re.compile(rf"(\d+|\+[\w-]+)\.({'|'.join(types)})(\.\d+)?\.md|README\.md|\.gitignore")
    fragments = [path.name for path in (ROOT / "changelog.d").iterdir()]
    assert [name for name in fragments if not form.fullmatch(name)] == []


def test_every_distribution_carries_the_licence() -> None:
    licence = (ROOT / "LICENSE").read_text()
    projects = [path.parent for pattern in ("*/pyproject.toml", "plugins/*/pyproject.toml") for path in ROOT.glob(pattern)]
    assert len(projects) >= 2
    assert all((project / "LICENSE").read_text() == licence for project in projects)


def test_decision_records_have_the_form_that_their_readme_gives() -> None:
    headings = ["Status", "Context", "Decision", "Consequences"]
    for path in (ROOT / "docs" / "adr").glob("[0-9]*.md"):
        assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", path.name)
        assert re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE)[: len(headings)] == headings, path.name
