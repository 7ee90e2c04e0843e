"""Plants a fault into a mode's own code, in place: a text of its source is replaced, and the functions get the new code.

The text must be there exactly once: when the mode has been rewritten a fault no longer applies, and says so, instead of passing
as found. Only functions are changed, not what a module computed when it was imported.
"""

import gc
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen


class NoLongerAppliesError(AssertionError):
    """The text that a fault replaces is not there, or more than once; or no function has it."""


@frozen(kw_only=True)
class CodeFault:
    """A replacement in the source of ``module``, which is imported; ``what`` names the mistake, ``shown_by`` scenarios."""

    what: str
    module: types.ModuleType
    right: str
    wrong: str
    shown_by: tuple[str, ...] = ()


@contextmanager
def planted(fault: CodeFault) -> Iterator[None]:
    """Have the fault in the code for as long as this lasts."""
    right, wrong = _functions(fault.module, fault, is_faulty=False), _functions(fault.module, fault, is_faulty=True)
    changed = {name for name, code in right.items() if not _same(code, wrong.get(name))}
    found = [each for each in _live_functions(fault.module) if each.__qualname__ in changed]
    if not found:
        raise NoLongerAppliesError(f"{fault.what}: no function of {fault.module.__name__} has it")
    before = [(each, each.__code__) for each in found]
    try:
        for each in found:
            each.__code__ = wrong[each.__qualname__]
        _forget(fault.module)
        yield
    finally:
        for each, code in before:
            each.__code__ = code
        _forget(fault.module)


def _functions(module: types.ModuleType, fault: CodeFault, *, is_faulty: bool) -> dict[str, types.CodeType]:
    """The code of each function by its qualified name."""
    path = Path(str(module.__file__))
    source = path.read_text(encoding="utf-8")
    if source.count(fault.right) != 1:
        times = source.count(fault.right)
        raise NoLongerAppliesError(f"{fault.what}: {fault.right!r} is {times} times in {path.name}, not once")
    text = source.replace(fault.right, fault.wrong) if is_faulty else source
    return dict(_codes(compile(text, str(path), "exec", dont_inherit=True)))


def _codes(code: types.CodeType) -> Iterator[tuple[str, types.CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant.co_qualname, constant
            yield from _codes(constant)


def _same(one: types.CodeType, other: types.CodeType | None) -> bool:
    """Whether two pieces of code do the same: line numbers do not count."""
    if other is None or one.co_code != other.co_code or one.co_names != other.co_names:
        return False
    pairs = zip(one.co_consts, other.co_consts, strict=False)
    same = (_same(a, b) if isinstance(a, types.CodeType) and isinstance(b, types.CodeType) else a == b for a, b in pairs)
    return len(one.co_consts) == len(other.co_consts) and all(same)


def _live_functions(module: types.ModuleType) -> list[types.FunctionType]:
    """The functions that this module has made, wherever they are kept."""
    return [each for each in gc.get_objects() if isinstance(each, types.FunctionType) and each.__module__ == module.__name__]


def _forget(module: types.ModuleType) -> None:
    """Empty the caches of the whole distribution."""
    package = module.__name__.partition(".")[0]
    for name, each in list(sys.modules.items()):
        if name.partition(".")[0] == package:
            for value in list(vars(each).values()):
                clear = getattr(value, "cache_clear", None)
                if callable(clear):
                    clear()
