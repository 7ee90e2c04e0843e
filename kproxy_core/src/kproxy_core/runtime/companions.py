"""Puts the chosen mode and the companions that it wants together, and cleans up after the modes that are not used."""

import logging
from collections.abc import Callable, Iterable, Iterator

import pluggy
from attrs import define, evolve, field, frozen

from kproxy_core.config.settings import Settings
from kproxy_core.plugin.backend import AnyBackend, Companion, Leftovers
from kproxy_core.plugin.errors import ConfigError, ContractError, UnsupportedError
from kproxy_core.plugin.registry import installed_modes, load_backend, new_plugin_manager
from kproxy_core.runtime.logs import LOGGER
from kproxy_core.runtime.stack import StackedBackend

log = logging.getLogger(LOGGER)


@frozen(kw_only=True)
class Assembled:
    """What the engine is to drive: a mode alone, or a stack of them.

    ``modes`` are the names of its parts. ``notes`` say what is not served for want of an optional companion, for the log.
    """

    backend: AnyBackend
    modes: frozenset[str]
    notes: tuple[str, ...] = ()


def assemble(settings: Settings, plugins: pluggy.PluginManager, usable: Callable[[AnyBackend], bool] | None = None) -> Assembled:
    """Load the mode of the settings, and what it wants beneath it; register their plugins.

    ``usable`` tells whether an optional companion can work here; without it, nobody is asked. Raises as
    :func:`~kproxy_core.plugin.registry.load_backend`, also when a required companion is not installed.
    """
    assembly = _Assembly(settings=settings, plugins=plugins, usable=usable or (lambda _backend: True))
    top = load_backend(settings.mode, settings, plugins)
    # Each stands beneath all that name it: the last mention counts.
    mentions = {id(backend): backend for backend in reversed(assembly.with_companions(top, (settings.mode,)))}
    stack = tuple(reversed(mentions.values()))
    return Assembled(
        backend=top if len(stack) == 1 else StackedBackend(stack),
        modes=frozenset(backend.name for backend in stack),
        notes=tuple(assembly.notes),
    )


@define(kw_only=True)
class _Assembly:
    settings: Settings
    plugins: pluggy.PluginManager
    usable: Callable[[AnyBackend], bool]
    loaded: dict[str, AnyBackend] = field(factory=dict)
    notes: list[str] = field(factory=list)

    def with_companions(self, backend: AnyBackend, path: tuple[str, ...]) -> list[AnyBackend]:
        """The backend, and everything beneath it, some of it perhaps several times. ``path`` are the modes down to this one."""
        found = [backend]
        for companion in backend.companions:
            downwards = (*path, companion.mode)
            if companion.mode in path:
                raise ContractError(f"modes want each other beneath them: {' above '.join(downwards)}")
            if companion.required:
                found += self.with_companions(self._required(path[-1], companion), downwards)
            else:
                found += self._optional(companion, downwards)
        return found

    def _required(self, above: str, companion: Companion) -> AnyBackend:
        if companion.mode not in installed_modes():
            raise ConfigError(
                f"mode {above} needs mode {companion.mode} beneath it, which {companion.purpose} and is not installed; "
                f"try: pip install kproxy-{companion.mode}"
            )
        return self._load(companion.mode)

    def _optional(self, companion: Companion, path: tuple[str, ...]) -> list[AnyBackend]:
        lost = f"nothing {companion.purpose}"
        if companion.mode not in installed_modes():
            self._note(f"{lost}: mode {companion.mode} is not installed (pip install kproxy-{companion.mode})")
            return []
        try:
            backend = self._load(companion.mode)
            if self.usable(backend):
                return self.with_companions(backend, path)
            self._note(f"{lost}: mode {companion.mode} cannot work here (kproxy probe {companion.mode} says why)")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a stranger's plugin may raise anything, and is not needed
            self._note(f"{lost}: {error or repr(error)}")
        return []

    def _load(self, mode: str) -> AnyBackend:
        if mode not in self.loaded:
            self.loaded[mode] = load_backend(mode, self.settings, self.plugins)
        return self.loaded[mode]

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def unused_modes(settings: Settings, used: frozenset[str]) -> Iterator[AnyBackend]:
    """Each installed mode that is not among ``used``, loaded when its turn comes: an earlier daemon may have left rules of it.

    One that does not load is passed over; ``kproxy modes`` tells why.
    """
    seen = set(used)
    for mode in sorted(installed_modes().keys() - used):
        try:
            backend = load_backend(mode, evolve(settings, mode=mode), new_plugin_manager())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a stranger's import may raise anything
            log.debug("what mode %s may have left is not looked for: %s", mode, error or repr(error))
            continue
        if backend.name not in seen:
            seen.add(backend.name)
            yield backend


def clean_up_after(unused: Iterable[AnyBackend]) -> None:
    """Remove what modes that are not used any more have in the kernel; what cannot be removed is told in the log."""
    for backend in unused:
        try:
            with backend.open() as dataplane:
                removed = dataplane.cleanup() if dataplane.leftovers() else Leftovers()
        except UnsupportedError as error:
            log.debug("mode %s cannot work here and so has left nothing: %s", backend.name, error)
            continue
        except Exception as error:  # noqa: BLE001 - a stranger's mode may raise anything, and the others go on
            log.warning("what mode %s may have left cannot be removed: %s", backend.name, error or repr(error))
            continue
        for line in removed.lines:
            log.info("removed what mode %s has left: %s", backend.name, line)
