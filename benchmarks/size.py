"""How large the code is, by the counts that a maintainer feels. Printed; nothing is kept.

The files that a NodePort cell runs through are counted by running some, in a lab of network
namespaces.
"""

from __future__ import annotations

import ast
import collections
import io
import os
import statistics
import subprocess
import sys
import tempfile
import tokenize
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAB = (sys.executable, "-m", "lab")
SCENARIO = "services"
CELLS = "nodeport and client and tcp-small"
_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
_TRACE = """
import sys, threading
place, root, *words = sys.argv[1:]
seen = set()
def look(frame, event, _):
    if event == "call" and frame.f_code.co_flags & 1:  # a function: no module, no class
        seen.add(frame.f_code.co_filename)
from lab.cli.main import main
sys.argv = ["lab", *words]
threading.setprofile(look)
sys.setprofile(look)
try:
    main()
finally:
    sys.setprofile(None)
    with open(place, "w") as file:
        file.write("\\n".join(sorted(one for one in seen if one.startswith(root))))
"""


def code_lines(text: str) -> int:
    """Lines that hold code: neither blank ones nor comments nor docstrings."""
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (*_LAYOUT, tokenize.ENDMARKER):
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                held.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(held)


def repeated_classes(texts: Sequence[str]) -> int:
    """Names of public classes that more than one module defines."""
    names = collections.Counter(
        node.name
        for text in texts
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sum(count > 1 for count in names.values())


def imported(*words: str) -> int:
    """Modules of ours that a command imports."""
    command = (sys.executable, "-X", "importtime", "-m", "lab", *words)
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    names = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    return sum(name == "lab" or name.startswith("lab.") for name in names)


def files_of_a_cell() -> int:
    """Files of ours that run when NodePort cells of a lab are asked."""
    with tempfile.TemporaryDirectory() as kept:
        Path(kept).chmod(0o700)
        environment = {**os.environ, "HYBRIDLAB_STATE": f"{kept}/state"}

        def run(*command: str) -> str:
            ran = subprocess.run(
                command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment
            )
            return ran.stdout

        run(*LAB, "up", SCENARIO)
        try:
            files = f"{kept}/files"
            run(sys.executable, "-c", _TRACE, files, f"{ROOT}/lab/", "test", SCENARIO, "-k", CELLS)
            return len(Path(files).read_text().splitlines())
        finally:
            run(*LAB, "down", SCENARIO)


VAGUE = frozenset(
    {"one", "found", "there", "said", "what", "doing", "asked", "seen"}
    | {"words", "made", "kept", "heard"}
)
"""Names that say nothing of what they hold."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
MOST_LINES, MOST_PARAMETERS = 80, 7
ROOMS = ("machines", "windows")


def functions(trees: Iterable[ast.AST]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method."""
    for tree in trees:
        yield from (node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS))


def vague_names(trees: Iterable[ast.AST]) -> int:
    """Bindings of vague names: variables and parameters."""
    return sum(
        (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE)
        or (isinstance(node, ast.arg) and node.arg in VAGUE)
        for tree in trees
        for node in ast.walk(tree)
    )


def lazy_imports(trees: Iterable[ast.AST]) -> int:
    """Imports inside functions."""
    return sum(
        isinstance(node, ast.Import | ast.ImportFrom)
        for function in functions(trees)
        for node in ast.walk(function)
    )


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many parameters a function has, itself left out."""
    arguments = function.args
    named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return sum(argument.arg not in {"self", "cls"} for argument in named)


def lines_of_tests() -> collections.Counter[str]:
    """Lines of modules, of cases, and of other files of tests; packed recordings have none."""
    lines: collections.Counter[str] = collections.Counter()
    for path in (ROOT / "tests").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".xz":
            beside = "cases" if "cases" in path.relative_to(ROOT).parts else "other"
            kind = "py" if path.suffix == ".py" else beside
            lines[kind] += path.read_bytes().count(b"\n")
    return lines


def entry_points() -> int:
    """Kinds of plug-ins that others can add."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return sum(group.startswith("hybridlab.") for group in project["entry-points"])


def main() -> None:
    """Print every count."""
    texts_by_path = {path: path.read_text() for path in sorted((ROOT / "lab").rglob("*.py"))}
    texts = [*texts_by_path.values()]
    trees = [ast.parse(text) for text in texts]
    packages = {path: path.relative_to(ROOT / "lab").parts[0] for path in texts_by_path}
    core = [text for path, text in texts_by_path.items() if packages[path] not in ROOMS]
    explaining = [
        text for path, text in texts_by_path.items() if packages[path] in {"explain", "facts"}
    ]
    lines = [len(text.splitlines()) for text in texts]
    of_tests = lines_of_tests()
    loops = sum(
        isinstance(node, ast.While) and isinstance(node.test, ast.Constant)
        for text in texts
        for node in ast.walk(ast.parse(text))
    )
    counts = {
        "lines of lab/": sum(lines),
        "lines of code of lab/": sum(code_lines(text) for text in texts),
        "lines of the core": sum(len(text.splitlines()) for text in core),
        "lines of code of the core": sum(map(code_lines, core)),
        "lines of explain and facts": sum(len(text.splitlines()) for text in explaining),
        "modules": len(texts),
        "median module": int(statistics.median(lines)),
        "largest module": max(lines),
        "lines of tests/**/*.py": of_tests["py"],
        "lines of text of tests/cases/": of_tests["cases"],
        "lines of text of other files of tests/": of_tests["other"],
        "modules of ours that 'lab --help' imports": imported("--help"),
        "modules of ours that 'lab list' imports": imported("list"),
        "files of ours that a NodePort cell runs": files_of_a_cell(),
        "names of public classes defined more than once": repeated_classes(texts),
        "'while True'": loops,
        "bindings of vague names (one, found, there, said, ...)": vague_names(trees),
        "imports inside functions": lazy_imports(trees),
        f"functions over {MOST_LINES} lines": sum(
            (function.end_lineno or 0) - function.lineno >= MOST_LINES
            for function in functions(trees)
        ),
        f"functions with more than {MOST_PARAMETERS} parameters": sum(
            parameters(function) > MOST_PARAMETERS for function in functions(trees)
        ),
        "kinds of plug-ins that others can add": entry_points(),
    }
    for measure, count in counts.items():
        print(f"{count:>8,}  {measure}")


if __name__ == "__main__":
    main()
