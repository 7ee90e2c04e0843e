"""Puts the pages of the documentation in order: by folder, and in each folder as its page list in docs/README.md has them."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

SECTIONS = {
    "tutorial": "Tutorial",
    "how-to": "How-to guides",
    "reference": "Reference",
    "explanation": "Explanation",
    "adr": "Decisions",
}


def pages(docs: Path, folder: str) -> list[str]:
    """The pages of one folder: first those that docs/README.md links, in its order, then the others by name."""
    linked: list[str] = re.findall(rf"\(({folder}/[\w-]+\.md)[)#]", (docs / "README.md").read_text())
    present = sorted(str(path.relative_to(docs)) for path in (docs / folder).glob("*.md"))
    return [*dict.fromkeys(linked), *(page for page in present if page not in linked)]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the navigation; mkdocs calls this before it reads the pages."""
    docs = Path(config.docs_dir)
    navigation: list[str | dict[str, list[str]]] = ["README.md"]
    navigation += [{title: pages(docs, folder)} for folder, title in SECTIONS.items()]
    config.nav = navigation
    return config
