"""The code blocks that a page marks with ``<!-- run -->`` do what they say."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import frozen

from ..programs import SEARCH_PATH, program

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARK = re.compile(r"^<!-- run(?P<root>: root)? -->\n\s*\n?(?P<block>(?:    .*\n|[ ]*\n)+)", re.MULTILINE)
OWN_NAMESPACES = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


@frozen
class Block:
    """The commands of one page that have the same mark, in one script: later blocks build on earlier ones."""

    page: Path
    as_root: bool
    script: str


def blocks() -> Iterator[Block]:
    """All marked blocks."""
    for page in PAGES:
        marked = list(MARK.finditer(page.read_text()))
        for as_root in (False, True):
            parts = [match["block"] for match in marked if bool(match["root"]) is as_root]
            if parts:
                yield Block(page, as_root, "".join(re.sub("^    ", "", part, flags=re.MULTILINE) for part in parts))


def prefix(block: Block) -> list[str]:
    """What makes namespaces for a block that wants to be root; skips the test where that cannot be had."""
    if not block.as_root:
        return []
    program("ip")
    command = [*OWN_NAMESPACES, *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("neither root nor allowed to make user namespaces")
    return command


ALL = list(blocks())


def identifier(block: Block) -> str:
    """A block's name for the test's."""
    return str(block.page.relative_to(ROOT)) + (", as root" if block.as_root else "")


@pytest.mark.parametrize("block", ALL, ids=identifier)
def test_marked_blocks_run(block: Block, tmp_path: Path) -> None:
    result = subprocess.run(
        [*prefix(block), "bash", "-euxo", "pipefail", "-c", block.script],
        cwd=ROOT,
        env={**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), SEARCH_PATH]), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_blocks_are_found() -> None:
    assert any(block.page == ROOT / "README.md" and "kproxy render" in block.script for block in ALL)
