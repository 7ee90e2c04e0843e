"""Plants a fault into a copy of the resolver.

A fault is one replacement in the source text of one module. The text must be there exactly once: when the resolver has been
rewritten a fault no longer applies, and says so, instead of passing as caught.
"""

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from attrs import frozen

import kproxy_core.resolve
from kproxy_core.model.state import NodeState
from kproxy_core.testing.oracle import Scene

ORIGINAL = "kproxy_core.resolve"
COPY = "planted_resolve"
SOURCES = Path(kproxy_core.resolve.__path__[0])

Resolve = Callable[[Scene], NodeState]


@frozen
class Fault:
    """A replacement in ``module`` of the resolver; ``what`` names the mistake."""

    what: str
    module: str
    right: str
    wrong: str


class NoLongerAppliesError(AssertionError):
    """The text that a fault replaces is not there, or more than once."""


@contextmanager
def planted(fault: Fault | None) -> Iterator[Resolve]:
    """The resolver with a fault in it; None gives a copy without one."""
    finder = _Copy(fault)
    sys.meta_path.insert(0, finder)
    try:
        node, resolve = (importlib.import_module(f"{COPY}.{name}") for name in ("node", "resolve"))
        if fault is not None:
            importlib.import_module(f"{COPY}.{fault.module}")
        yield functools.partial(_decide, node, resolve)
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == COPY]:
            del sys.modules[name]


def _decide(node: Any, resolve: Any, scene: Scene) -> NodeState:
    site = scene.site
    context = node.node_context(scene.snapshot, site.addresses, scene.settings, node_ports_everywhere=site.node_ports_everywhere)
    state: NodeState = resolve.resolve(scene.snapshot, context, scene.settings)
    return state


class _Copy(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the resolver's modules under another name, with a fault in one of them."""

    def __init__(self, fault: Fault | None) -> None:
        self._fault = fault

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != COPY:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=fullname == COPY)

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__.partition(".")[2]
        fault = self._fault if self._fault is not None and self._fault.module == name else None
        exec(_compiled(name or "__init__", fault), module.__dict__)


@functools.cache
def _compiled(name: str, fault: Fault | None) -> CodeType:
    source = (SOURCES / f"{name}.py").read_text()
    if fault is not None:
        if source.count(fault.right) != 1:
            raise NoLongerAppliesError(
                f"{fault.what}: {fault.right!r} is {source.count(fault.right)} times in {name}.py, not once"
            )
        source = source.replace(fault.right, fault.wrong)
    return compile(source.replace(ORIGINAL, COPY), f"{COPY}/{name}.py", "exec")
