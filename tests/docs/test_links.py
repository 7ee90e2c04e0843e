"""Every link from one file of the repository to another leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HIDDEN = {".git", ".nox", ".venv", "site", "node_modules"}
PAGES = sorted(path for path in ROOT.rglob("*.md") if not HIDDEN & set(path.relative_to(ROOT).parts))

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def links(page: Path) -> list[str]:
    """The targets of a page's links, without those that leave the repository and those in code."""
    prose = re.sub(r"^(    .*|```.*?```)$|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [target for target in LINK.findall(prose) if "://" not in target]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs make them."""
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in HEADING.findall(page.read_text()))
    return {re.sub(r"[\s]+", "-", heading) for heading in plain}


def dead_links(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    dead = []
    for target in links(page):
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            dead.append(target)
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page) == []


def test_there_are_pages_with_links() -> None:
    assert len(links(ROOT / "docs" / "README.md")) > 10


def test_a_dead_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A b: c\n[x](#a-b-c) [y](#d) [z](z.md) `[c](c.md)`\n\n    [d](d.md)\n\n[e](page.md#a-b-c)\n")
    assert dead_links(page) == ["#d", "z.md"]
