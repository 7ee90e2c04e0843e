"""Functions, parameter lists and modules stay small, and every module says what its one job is."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("kproxy_core", "plugins", "tests", "benchmarks", "examples", "tools")
MODULES = sorted([*(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")), ROOT / "noxfile.py"])
SHIPPED = [path for path in MODULES if "src" in path.parts]

LONGEST_FUNCTION = 60
LONGEST_MODULE = 500
MOST_PARAMETERS = 5

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(source: str) -> Iterator[Function]:
    """All functions of a module, nested ones and methods included."""
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, Function))


def length(function: Function) -> int:
    """Lines from ``def`` to the end of the body, docstring included."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def is_command(function: Function) -> bool:
    """Whether it is a click command: its parameters are the options of the command line, not a signature to call."""
    return any("command" in ast.unparse(decorator) for decorator in function.decorator_list)


def parameters(function: Function) -> int:
    """Number of parameters, ``self`` and ``cls`` aside."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return sum(argument is not None and argument.arg not in {"self", "cls"} for argument in named)


def too_large(source: str) -> list[str]:
    """What of a module is beyond the limits, one line each."""
    found = [
        f"{function.name}: {length(function)} lines" for function in functions(source) if length(function) > LONGEST_FUNCTION
    ]
    lines = source.count("\n")
    return [*found, *([f"the module: {lines} lines"] if lines > LONGEST_MODULE else [])]


def too_many_parameters(source: str) -> list[str]:
    """The functions of a module with too many parameters, one line each."""
    return [
        f"{function.name}: {parameters(function)} parameters"
        for function in functions(source)
        if parameters(function) > MOST_PARAMETERS and not is_command(function)
    ]


def by_module(paths: list[Path], check: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """What ``check`` finds in each module where it finds something."""
    found = {str(path.relative_to(ROOT)): check(path.read_text()) for path in paths}
    return {name: findings for name, findings in found.items() if findings}


def test_the_search_finds_modules() -> None:
    assert ROOT / "kproxy_core/src/kproxy_core/model/state.py" in SHIPPED
    assert Path(__file__) in MODULES


def test_functions_and_modules_are_small() -> None:
    assert by_module(MODULES, too_large) == {}


def test_functions_have_few_parameters() -> None:
    assert by_module(SHIPPED, too_many_parameters) == {}


def test_every_module_says_what_it_is_for() -> None:
    assert [str(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_limits_are_seen_when_exceeded() -> None:
    assert too_large("def f():\n" + "    x = 1\n" * LONGEST_FUNCTION) == ["f: 61 lines"]
    assert too_large("x = 1\n" * (LONGEST_MODULE + 1)) == ["the module: 501 lines"]
    assert too_many_parameters("class C:\n    def f(self, a, b, /, c, *d, e, **g): pass") == ["f: 6 parameters"]
    assert too_many_parameters("@main.command()\ndef f(a, b, c, d, e, g): pass") == []
