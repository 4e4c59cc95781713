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
from collections.abc import Sequence
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


def main() -> None:
    """Print every count."""
    texts = [path.read_text() for path in sorted((ROOT / "lab").rglob("*.py"))]
    lines = [len(text.splitlines()) for text in texts]
    tests = [path for path in (ROOT / "tests").rglob("*") if path.is_file()]
    of_tests = {True: 0, False: 0}
    for path in tests:
        if "__pycache__" not in path.parts:
            of_tests[path.suffix == ".py"] += path.read_bytes().count(b"\n")
    loops = sum(
        isinstance(node, ast.While) and isinstance(node.test, ast.Constant)
        for text in texts
        for node in ast.walk(ast.parse(text))
    )
    counts = {
        "lines of lab/": sum(lines),
        "lines of code of lab/": sum(code_lines(text) for text in texts),
        "modules": len(texts),
        "median module": int(statistics.median(lines)),
        "largest module": max(lines),
        "lines of tests/**/*.py": of_tests[True],
        "lines of other files of tests/": of_tests[False],
        "modules of ours that 'lab --help' imports": imported("--help"),
        "modules of ours that 'lab list' imports": imported("list"),
        "files of ours that a NodePort cell runs": files_of_a_cell(),
        "names of public classes defined more than once": repeated_classes(texts),
        "'while True'": loops,
    }
    for what, count in counts.items():
        print(f"{count:>8,}  {what}")


if __name__ == "__main__":
    main()
