"""Copies the sample mode into the template of ``kproxy new-mode``; to be run after each change of the sample."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "examples" / "nfttext"
TEMPLATE = ROOT / "kproxy_core" / "src" / "kproxy_core" / "cli" / "new_mode_template"
SUFFIX = ".in"


def sample_files() -> list[Path]:
    """The sample's files, without what running it leaves there."""
    paths = (path.relative_to(SAMPLE) for path in SAMPLE.rglob("*") if path.is_file())
    return sorted(path for path in paths if not any(part.startswith((".", "__pycache__")) for part in path.parts))


def main() -> None:
    """Write the template anew."""
    shutil.rmtree(TEMPLATE, ignore_errors=True)
    for path in sample_files():
        target = TEMPLATE / f"{path}{SUFFIX}"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((SAMPLE / path).read_bytes())


if __name__ == "__main__":
    main()
