"""What is in the wheels and sdists."""

import email
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent for pattern in ("*/src/*", "plugins/*/src/*") for path in ROOT.glob(f"{pattern}/__init__.py"))


def one(folder: Path, pattern: str) -> Path:
    """The one file that ``pattern`` finds."""
    (found,) = folder.glob(pattern)
    return found


def metadata(wheel: zipfile.ZipFile) -> Message:
    """The wheel's METADATA."""
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_the_wheel_holds_the_package_its_type_marker_and_the_licence(dist: Path, package: Path) -> None:
    with zipfile.ZipFile(one(dist, f"{package.name}-*.whl")) as wheel:
        names = wheel.namelist()
        licences = [wheel.read(name) for name in names if "/licenses/" in name]
    files = [path.relative_to(package.parent) for path in package.rglob("*") if path.is_file()]
    expected = {str(path) for path in files if not any(part.startswith((".", "__pycache__")) for part in path.parts)}
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert f"{package.name}/py.typed" in names
    assert licences == [(ROOT / "LICENSE").read_bytes()]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_the_wheel_is_for_every_python_from_3_11_and_says_so(dist: Path, package: Path) -> None:
    path = one(dist, f"{package.name}-*.whl")
    with zipfile.ZipFile(path) as wheel:
        fields = metadata(wheel)
    assert path.name.endswith("-py3-none-any.whl")
    assert fields["Requires-Python"] == ">=3.11"
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields["Description-Content-Type"] == "text/markdown"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_the_sdist_holds_sources_readme_and_licence_and_nothing_else(dist: Path, package: Path) -> None:
    path = one(dist, f"{package.name}-*.tar.gz")
    with tarfile.open(path) as sdist:
        names = {Path(*Path(name).parts[1:]) for name in sdist.getnames()}
    assert {str(name) for name in names if name.parts[0] != "src"} <= {
        ".gitignore",
        "LICENSE",
        "PKG-INFO",
        "README.md",
        "pyproject.toml",
    }
    assert {Path("LICENSE"), Path("README.md"), Path("pyproject.toml"), Path("src", package.name, "py.typed")} <= names
