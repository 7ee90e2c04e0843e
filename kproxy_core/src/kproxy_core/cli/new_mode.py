"""``kproxy new-mode``: writes a mode's project, whole and working, from the sample in examples/."""

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from kproxy_core.cli.examples import Command

SAMPLE = "nfttext"
"""The sample's name, which stands in the template for that of the mode to be written."""
SUFFIX = ".in"
"""What the names of the template's files end with: nothing is to take them for modules of this package."""
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_LONGEST = 32

EXAMPLES = (
    ("kproxy new-mode mymode", "writes the folder kproxy-mymode"),
    ("kproxy new-mode my_mode --directory ~/src", "writes ~/src/kproxy-my-mode"),
)


def _read_name(context: click.Context, parameter: click.Parameter, name: str) -> str:
    if (wrong := _objection(name)) is not None:
        raise click.BadParameter(wrong, ctx=context, param=parameter)
    return name


def _objection(name: str) -> str | None:
    from importlib.util import find_spec

    from kproxy_core.plugin.registry import installed_modes

    if _NAME.fullmatch(name) is None or len(name) > _LONGEST:
        letters = "lower-case letters, digits and single underscores, beginning with a letter"
        return f"{name!r} cannot name a mode: write at most {_LONGEST} {letters}, such as my_mode"
    if (mode := installed_modes().get(name)) is not None:
        return f"a mode {name!r} is installed already ({mode.value}): choose another name"
    if find_spec(f"kproxy_{name}") is not None:
        return f"a package kproxy_{name} is installed already, and the mode's would be called so, too: choose another name"
    return None


@click.command("new-mode", cls=Command, examples=EXAMPLES)
@click.argument("name", callback=_read_name)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIRECTORY",
    help="Where to write the project's folder.  [default: here]",
)
def command(name: str, directory: Path) -> None:
    """Write the project of a new mode NAME, with its conformance test.

    It works as it is: a small mode that feeds nft with text. Replace its parts by your own, one after another. The folder
    is called kproxy-NAME (with dashes for underscores) and must not be there yet.
    """
    project = directory / f"kproxy-{_dashed(name)}"
    if project.exists():
        raise click.BadParameter(f"{project} is there already: choose another name, or another --directory", param_hint="NAME")
    for path, text in project_files(name).items():
        target = project / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    click.echo(f"wrote {project}: the mode {name}, which forwards by nft until you replace its parts. What comes next:\n")
    click.echo(f"    pip install --editable '{_path(project)}[testing]'")
    click.echo(f"    kproxy probe {name}")
    click.echo(f"    pytest {project}          # its conformance test, as root; -k hairpin is a part of it")
    click.echo(f"    kproxy run --source manifests:DIR --mode {name}\n")
    click.echo(f"{project / 'README.md'} says where to begin.")


def project_files(name: str) -> dict[Path, str]:
    """Return the texts of a mode's project by their paths in it."""
    return {Path(renamed(path, name)): renamed(text, name) for path, text in template().items()}


def template() -> dict[str, str]:
    """Return the texts of the template, those of the sample, by their paths in the sample."""
    return dict(_texts(files(__package__) / "new_mode_template", ""))


def _texts(folder: Traversable, prefix: str) -> list[tuple[str, str]]:
    found = []
    for each in folder.iterdir():
        if each.is_dir():
            found += _texts(each, f"{prefix}{each.name}/")
        elif each.name.endswith(SUFFIX):
            found.append((f"{prefix}{each.name.removesuffix(SUFFIX)}", each.read_text(encoding="utf-8")))
    return sorted(found)


def renamed(text: str, name: str) -> str:
    """Put a mode's name in the place of the sample's, in whatever form a distribution, a class, a package or a mode has it."""
    camel = "".join(word.capitalize() for word in name.split("_"))
    text = text.replace(f"kproxy-{SAMPLE}", f"kproxy-{_dashed(name)}").replace(SAMPLE.capitalize(), camel)
    return text.replace(SAMPLE, name)


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _path(project: Path) -> str:
    """A path that pip does not take for the name of a distribution."""
    return str(project) if project.is_absolute() else f"./{project}"
