"""Every check and task of this repository, as nox sessions.

All sessions share one environment, ``.nox/developer``, made by ``tools/python-venv.sh``: installing once and using it
ten times is what keeps a run short. ``nox`` without arguments runs what CI runs, cheap checks first.
"""

import os
import shutil
from pathlib import Path

import nox

ROOT = Path(__file__).parent
ENVIRONMENT = Path(".nox") / "developer"
DISTRIBUTIONS = ["kproxy_core", "plugins/kproxy_nftables", "plugins/kproxy_iptables"]
WITHOUT_KERNEL = ["tests/architecture", "tests/docs", "tests/unit", "tests/property", "tests/engine"]
TYPED = [*(f"{folder}/src" for folder in (*DISTRIBUTIONS, "examples/nfttext")), "tests", "benchmarks", "noxfile.py"]

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "docs", "tests"]
nox.options.default_venv_backend = "none"


def run(session: nox.Session, program: str, *arguments: str, env: dict[str, str] | None = None) -> None:
    """Run ``program`` of the shared environment, which is made or brought up to date first."""
    requirements = ("--requirement", "tools/developer-requirements.txt")
    session.run("tools/python-venv.sh", str(ENVIRONMENT), *requirements, external=True, log=False)
    # An ordinary user's search path on Debian leaves out the folders of nft and ip.
    path = os.pathsep.join([str(ROOT / ENVIRONMENT / "bin"), os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    command = str(ROOT / ENVIRONMENT / "bin" / program)
    as_root = ["tools/as-root.sh"] if program == "pytest" else []
    session.run(*as_root, command, *arguments, env={"PATH": path, **(env or {})}, external=True)


def existing(paths: list[str]) -> list[str]:
    """Return those of ``paths`` that are in this checkout."""
    return [path for path in paths if (ROOT / path).exists()]


@nox.session(tags=["checks"])
def lint(session: nox.Session) -> None:
    """Check style, formatting, layers, size limits and what else tests/architecture looks at."""
    run(session, "ruff", "check")
    run(session, "ruff", "format", "--check")
    run(session, "pytest", "-q", "tests/architecture")


@nox.session(tags=["checks"])
def types(session: nox.Session) -> None:
    """Check the types of the distributions, the tests and the benchmarks, strictly."""
    run(session, "mypy", *(session.posargs or existing(TYPED)))


@nox.session(tags=["checks"])
def docs(session: nox.Session) -> None:
    """Build the documentation into site/, strictly: no dead link, no missing anchor, no page left out."""
    run(session, "mkdocs", "--quiet", "build", "--strict")


@nox.session
def tests(session: nox.Session) -> None:
    """Run every test in one pytest run, so that its last line counts them all. Needs root, or user namespaces."""
    run(session, "pytest", *session.posargs)


@nox.session
def unit(session: nox.Session) -> None:
    """Run the tests that need no kernel and no root, on all processors."""
    run(session, "pytest", "--numprocesses", "auto", *(session.posargs or existing(WITHOUT_KERNEL)))


@nox.session
def kernel(session: nox.Session) -> None:
    """Run the tests that send packets through the kernel, in one process. Needs root, or user namespaces."""
    run(session, "pytest", *(session.posargs or ["tests/kernel"]))


@nox.session
def ipvs(session: nox.Session) -> None:
    """Run the tests of IPVS: here if the kernel has it, else in user-mode Linux (Debian's user-mode-linux)."""
    run(session, "pytest", *(session.posargs or ["tests/ipvs"]))


@nox.session
def e2e(session: nox.Session) -> None:
    """Run the tests of the kproxy command as its own process. Needs root, or user namespaces."""
    run(session, "pytest", *(session.posargs or ["tests/e2e", "tests/e2e_api"]))


@nox.session
def wheels(session: nox.Session) -> None:
    """Build wheels and sdists into dist/, install only those into a clean environment, run the demo from there."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    for distribution in DISTRIBUTIONS:
        run(session, "python", "-m", "build", "--no-isolation", "--outdir", "dist", distribution)
    run(session, "pytest", "tests/packaging", *session.posargs, env={"KPROXY_DIST": str(ROOT / "dist")})


@nox.session
def bench(session: nox.Session) -> None:
    """Measure; the results go to benchmarks/results."""
    run(session, "python", "-m", "benchmarks", *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """Run the demo from this checkout, for instance ``nox -s demo -- --json``."""
    run(session, "kproxy", "demo", *session.posargs)
