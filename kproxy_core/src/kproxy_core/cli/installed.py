"""The installed modes as commands see them: each loaded by itself, broken ones included; and the best one, when none is named."""

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint

import click
from attrs import frozen

from kproxy_core.config.settings import Settings
from kproxy_core.plugin.backend import AnyBackend, Capability, Companion, Finding, Support
from kproxy_core.plugin.errors import ConfigError, UnsupportedError
from kproxy_core.plugin.registry import installed_modes, load_backend, new_plugin_manager

DISTRIBUTIONS = {
    **{mode: f"kproxy-{mode}" for mode in ("iptables", "nftables", "ipvs", "userspace", "ebpf")},
    "kernelspace": "kproxy-ebpf",
}
"""Where the known modes come from."""

NONE_INSTALLED = "no mode is installed; the first to try is: pip install kproxy-nftables"


@frozen(kw_only=True)
class InstalledMode:
    """A mode that an installed distribution announces. ``backend`` is None when it does not load; ``error`` then says why."""

    name: str
    distribution: str
    version: str
    module: str
    backend: AnyBackend | None
    error: str = ""


def load_installed() -> tuple[InstalledMode, ...]:
    """Load each installed mode by itself."""
    return tuple(_load(name, point) for name, point in installed_modes().items())


def _load(name: str, point: EntryPoint) -> InstalledMode:
    backend, error = None, ""
    try:
        backend = load_backend(name, Settings(mode=name), new_plugin_manager())
    except (Exception, SystemExit) as failure:  # noqa: BLE001 - a stranger's import may raise anything
        error = str(failure) or repr(failure)
    return InstalledMode(
        name=name,
        distribution=point.dist.name if point.dist else "",
        version=point.dist.version if point.dist else "",
        module=point.value,
        backend=backend,
        error=error,
    )


def probe(backend: AnyBackend) -> Support:
    """Probe a mode here; that its probe fails itself is a fatal finding, and so is that a companion it needs is not installed."""
    missing = tuple(_missing(companion) for companion in backend.companions if companion.mode not in installed_modes())
    try:
        return Support(findings=(*backend.probe().findings, *missing))
    except Exception as error:  # noqa: BLE001 - a stranger's probe may raise anything
        message = f"the probe itself failed: {error or repr(error)}"
        return Support(findings=(Finding(name="probe", ok=False, message=message, remedy="tell the mode's maker"),))


def _missing(companion: Companion) -> Finding:
    mode = companion.mode
    return Finding(
        name=f"companion {mode}",
        ok=False,
        message=f"mode {mode}, which {companion.purpose}, is not installed",
        remedy=f"pip install {DISTRIBUTIONS.get(mode, f'kproxy-{mode}')}",
        fatal=companion.required,
    )


def probe_installed(mode: InstalledMode) -> Support:
    """Probe an installed mode here; that it does not load is a fatal finding."""
    if mode.backend is not None:
        return probe(mode.backend)
    remedy = f"install {mode.distribution} again, or remove it"
    return Support(findings=(Finding(name="plugin", ok=False, message=f"does not load: {mode.error}", remedy=remedy),))


def check_name(mode: str) -> None:
    """Raise ``ConfigError`` when the mode is not installed, with the name that may have been meant, or what to install."""
    modes = installed_modes()
    if mode in modes:
        return
    if not modes:
        raise ConfigError(NONE_INSTALLED if mode == "nftables" else f"mode {mode!r} is not installed: {NONE_INSTALLED}")
    raise ConfigError(f"mode {mode!r} is not installed (installed: {', '.join(modes)}); {_remedy(mode, modes)}")


def _remedy(mode: str, modes: Iterable[str]) -> str:
    import difflib

    if mode not in DISTRIBUTIONS:
        near = difflib.get_close_matches(mode.lower(), [*modes, *DISTRIBUTIONS], n=1, cutoff=0.5)
        if near:
            install = "" if near[0] in modes else f" (pip install {DISTRIBUTIONS[near[0]]})"
            return f"did you mean {near[0]!r}{install}?"
        return f"modes that kproxy knows of: {', '.join(sorted(DISTRIBUTIONS))}"
    return f"try: pip install {DISTRIBUTIONS[mode]}"


def require_installed(mode: str = "") -> None:
    """Raise ``ConfigError`` when the mode, or any if none is named, is not installed."""
    if mode:
        check_name(mode)
    elif not installed_modes():
        raise ConfigError(NONE_INSTALLED)


def choose_mode(wanted: str = "", must_work: bool = True, say: Callable[[str], object] | None = None) -> str:
    """Return the mode wanted, or the best installed one (whose probe passes here, if it must work here), and say so.

    It is said by ``say``, on standard error unless that is given. The best is one whose rules outlive the daemon, then one with
    more capabilities. Raises ``ConfigError`` when it is not installed, or none is, ``UnsupportedError`` when there is none that
    loads and, if it must, works.
    """
    require_installed(wanted)
    if wanted:
        return wanted
    installed = load_installed()
    refused = [f"{mode.name} cannot be loaded: {mode.error}" for mode in installed if mode.backend is None]
    for mode in sorted(installed, key=_rank):
        if mode.backend is None:
            continue
        support = probe(mode.backend) if must_work else Support()
        if support.usable:
            works = " that work here" if must_work else ""
            (say or _say)(f"mode {mode.name}: the best of the installed ones{works} (--mode chooses another)")
            return mode.name
        refused += [f"{mode.name}: {text}" for text in fatal_lines(support.findings)]
    raise UnsupportedError("none of the installed modes works here:\n  " + "\n  ".join(refused))


def _say(text: str) -> None:
    click.echo(text, err=True)


def _rank(mode: InstalledMode) -> tuple[bool, int, str]:
    capabilities = mode.backend.capabilities if mode.backend else frozenset()
    return Capability.SURVIVES_CRASH not in capabilities, -len(capabilities), mode.name


def fatal_lines(findings: Iterable[Finding]) -> list[str]:
    """One line for each reason that keeps a mode from running, with what it concerns and the remedy."""
    names: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        if finding.fatal and not finding.ok:
            names.setdefault((finding.message, finding.remedy), []).append(finding.name)
    return [
        f"{', '.join(concerned)}: {message}" + (f"; remedy: {remedy}" if remedy else "")
        for (message, remedy), concerned in names.items()
    ]


def require_support(mode: str, support: Support) -> None:
    """Raise ``UnsupportedError`` with every remedy when something fatal is missing."""
    if not support.usable:
        raise UnsupportedError(f"mode {mode} cannot run here:\n  " + "\n  ".join(fatal_lines(support.findings)))
