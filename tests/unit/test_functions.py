"""Functions are short, and take few parameters."""

import ast
from collections.abc import Iterator
from pathlib import Path

import lab

MOST_LINES, MOST_PARAMETERS = 80, 7


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function of lab, with its file and name."""
    root = Path(lab.__file__).parent
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(root)}: {node.name}", node


def test_no_function_has_more_than_80_lines_or_more_than_7_parameters() -> None:
    excess = []
    for name, function in functions():
        lines = (function.end_lineno or 0) - function.lineno + 1
        arguments = function.args
        named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        count = sum(argument.arg not in {"self", "cls"} for argument in named)
        if lines > MOST_LINES or count > MOST_PARAMETERS:
            excess.append(f"{name}: {lines} lines, {count} parameters")
    assert not excess
