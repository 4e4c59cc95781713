"""Variables are the noun of what they hold."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import lab

VAGUE = frozenset({"one", "found", "there", "said", "what", "doing", "asked", "seen"})
"""Names that fit a value of any type, so they say nothing about it."""
VAGUE_IN_LAB = VAGUE | {"both", "good", "got", "half", "many", "mine", "these", "this"}
"""Those that lab no longer binds, too."""

CEILINGS = {
    "lifecycle": 2,
    "machines": 1,
    "matrix": 2,
    "providers": 1,
    "scenario": 3,
}
"""How often each package may bind them, at most; a package without a row, never.

What is left are fields of public records, most of which are keys of ``--json`` (``Problem.what``,
``Diagnosis.seen``). A row only goes down: whoever renames some lowers it to what is left.
"""


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Every name that a loop, a comprehension, an assignment, a parameter or a pattern binds."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name
            case _:
                pass


def vague_names() -> Counter[str]:
    """The number of vague names bound in each package of lab, and in each module beside them."""
    root = Path(lab.__file__).parent
    return Counter(
        path.relative_to(root).parts[0]
        for path in root.rglob("*.py")
        for name in bound_names(ast.parse(path.read_text(encoding="utf-8")))
        if name in VAGUE_IN_LAB
    )


REPOSITORY = Path(__file__).parents[2]
ELSEWHERE = {"benchmarks": 0, "examples": 0, "tests": 1_080, "tools": 0}
"""The same for the directories beside lab; those of the tests go down with each test rewritten."""


@pytest.mark.parametrize("directory", ELSEWHERE)
def test_a_directory_beside_lab_binds_no_more_vague_names_than_its_ceiling(directory: str) -> None:
    number = sum(
        name in VAGUE
        for path in (REPOSITORY / directory).rglob("*.py")
        for name in bound_names(ast.parse(path.read_text(encoding="utf-8")))
    )
    assert number <= ELSEWHERE[directory]


def test_a_package_binds_no_more_vague_names_than_its_ceiling() -> None:
    above = {
        package: (number, CEILINGS.get(package, 0))
        for package, number in vague_names().items()
        if number > CEILINGS.get(package, 0)
    }
    assert not above, "bound, allowed"


@pytest.mark.parametrize(
    "source",
    [
        "for one in rows: pass",
        "[one.name for one in rows]",
        "found = rows",
        "def function(rows, *, doing): pass",
        "lambda seen: seen.ready",
        "if said := reply(): pass",
        "with rows as there: pass",
        "match rows:\n    case [asked, *what]: pass",
        "match rows:\n    case {**what}: pass",
        "try: pass\nexcept OSError as found: pass",
    ],
)
def test_a_vague_name_is_seen_however_it_is_bound(source: str) -> None:
    assert VAGUE.intersection(bound_names(ast.parse(source)))


def test_an_attribute_or_an_argument_is_not_a_bound_name() -> None:
    assert not VAGUE.intersection(bound_names(ast.parse("row.seen(doing='up')")))
