"""What ``kproxy new-mode`` writes is the sample, under another name; and which names it refuses."""

import ast
import importlib.util
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kproxy_core.cli.main import main
from kproxy_core.cli.new_mode import SAMPLE, project_files, template
from kproxy_core.plugin.registry import installed_modes

ROOT = Path(__file__).parents[3]


def new_mode(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["new-mode", *arguments])


def sample_files() -> dict[str, str]:
    """The sample's files as tools/new_mode_template.py finds them."""
    spec = importlib.util.spec_from_file_location("new_mode_template", ROOT / "tools" / "new_mode_template.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return {str(path): (tool.SAMPLE / path).read_text() for path in tool.sample_files()}


def test_the_template_is_the_sample() -> None:
    assert template() == sample_files(), "run: python tools/new_mode_template.py"
    assert "src/kproxy_nfttext/plugin.py" in template()


@pytest.mark.parametrize(
    ("name", "distribution", "backend"), [("mine", "kproxy-mine", "MineBackend"), ("a_b2", "kproxy-a-b2", "AB2Backend")]
)
def test_everything_bears_the_new_name(name: str, distribution: str, backend: str) -> None:
    files = project_files(name)
    assert not [path for path, text in files.items() if SAMPLE in f"{path} {text}".lower()]
    project = tomllib.loads(files[Path("pyproject.toml")])["project"]
    assert project["name"] == distribution
    assert project["entry-points"]["kproxy.backends"] == {name: f"kproxy_{name}.plugin"}
    plugin = ast.parse(files[Path("src", f"kproxy_{name}", "plugin.py")])
    assert backend in [each.name for each in ast.walk(plugin) if isinstance(each, ast.ClassDef)]
    assert f'mode = "{name}"' in files[Path("tests", "test_conformance.py")]
    assert f'TABLE = "inet {distribution}"' in files[Path("src", f"kproxy_{name}", "dataplane.py")]


def test_the_sample_under_its_own_name_is_itself() -> None:
    assert {str(path): text for path, text in project_files(SAMPLE).items()} == template()


def test_the_files_are_where_the_command_says(tmp_path: Path) -> None:
    done = new_mode("my_mode", "--directory", str(tmp_path / "new"))
    assert done.exit_code == 0, done.output
    project = tmp_path / "new" / "kproxy-my-mode"
    assert {path.relative_to(project): path.read_text() for path in project.rglob("*") if path.is_file()} == project_files(
        "my_mode"
    )
    assert f"pip install --editable '{project}[testing]'" in done.output
    assert "kproxy run --source manifests:DIR --mode my_mode" in done.output


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kproxy-mine").mkdir()
    done = new_mode("mine", "--directory", str(tmp_path))
    assert done.exit_code == 2
    assert "kproxy-mine is there already: choose another name, or another --directory" in done.output
    assert list((tmp_path / "kproxy-mine").iterdir()) == []


@pytest.mark.parametrize("name", ["", "My", "my-mode", "1st", "_x", "x_", "a__b", "a.b", "../x", "a" * 33, "modé"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    done = new_mode(name, "--directory", str(tmp_path))
    assert done.exit_code == 2
    assert f"{name!r} cannot name a mode: write at most 32 lower-case letters" in done.output
    assert list(tmp_path.iterdir()) == []


def test_the_names_of_installed_modes_are_taken(tmp_path: Path) -> None:
    for name in installed_modes():
        done = new_mode(name, "--directory", str(tmp_path))
        assert done.exit_code == 2
        assert f"a mode {name!r} is installed already" in done.output


def test_the_name_of_another_package_is_taken(tmp_path: Path) -> None:
    done = new_mode("core", "--directory", str(tmp_path))
    assert done.exit_code == 2
    assert "a package kproxy_core is installed already" in done.output
