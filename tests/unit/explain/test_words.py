"""No decision is made by the words of a difference: whoever rewords them changes no verdict."""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

import lab
from lab.explain.check import OWN_KINDS, checks
from lab.facts.difference import Difference

ROOT = Path(lab.__file__).parent
WORDS = {"object", "intended", "observed", "sentence", "line", "shows", "mends"}
"""What users read of a difference."""
PARSES = {
    *("split", "rsplit", "splitlines", "partition", "rpartition", "startswith", "endswith"),
    *("removeprefix", "removesuffix", "find", "index", "count"),
    *("search", "match", "fullmatch", "findall", "finditer", "sub", "is_command"),
}
COMPARES = (ast.In, ast.NotIn, ast.Eq, ast.NotEq)
ALLOWED = {
    # Another difference's advice is given only if it can be run: a command line is no sentence.
    ("explain/stages.py", "is_command(differs[0].mends)"),
}


def reads_words(node: ast.AST) -> bool:
    """Whether the words of a difference are part of an expression; not fields of such a name."""
    fields = {
        id(part.value)
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and not hasattr(str, part.attr)
    }
    return any(
        isinstance(part, ast.Attribute) and part.attr in WORDS and id(part) not in fields
        for part in ast.walk(node)
    )


def parses_words(node: ast.AST) -> bool:
    """Whether an expression takes the words of a difference apart, or compares them."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=arguments):
            return name in PARSES and any(map(reads_words, (value, *arguments)))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return name in PARSES and any(map(reads_words, arguments))
        case ast.Compare(left=left, ops=operators, comparators=others):
            compares = any(isinstance(operator, COMPARES) for operator in operators)
            return compares and any(map(reads_words, (left, *others)))
        case ast.Subscript(value=ast.Attribute(attr=name)):
            return name in WORDS
    return False


def parsed_in(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if parses_words(node):
            yield ast.unparse(node)


@pytest.mark.parametrize("package", ["explain", "facts", "matrix", "suites"])
def test_no_decision_is_made_by_the_words_of_a_difference(package):
    found = {
        (path.relative_to(ROOT).as_posix(), expression)
        for path in sorted((ROOT / package).rglob("*.py"))
        for expression in parsed_in(path.read_text())
    }
    assert found - ALLOWED == set()


@pytest.mark.parametrize(
    "line",
    [
        "difference.observed.startswith('no carrier')",
        "re.search('hook', f'{difference.object} {difference.observed}')",
        "pattern.search(finding.sentence)",
        "'tunnel ' in one.object",
        "one.intended == NO_DROPPING_RULE",
        "one.object.split()[1]",
        "word in finding.object.lower()",
    ],
)
def test_words_that_are_parsed_are_found(line):
    assert [*parsed_in(line)]


def test_the_words_are_fields_of_a_difference():
    assert all(hasattr(Difference, name) for name in WORDS)


SHORTENS = {
    *("split", "rsplit", "splitlines", "partition", "rpartition"),
    *("removeprefix", "removesuffix", "sub"),
}
"""What makes other words of an error, to print them."""
ERROR_WORDS = {"cause", "happened", "why", "strerror"}
"""What users read of an error, or of a decision."""
WORDS_OF_ERROR = {"str", "repr", "reason"}
"""Functions that make words of an error."""
PARSED_ERRORS = {
    # Libraries and services that have no code for it: the place says which, and where it is from.
    ("machines/libvirt/connection.py", "word in str(error)"),
    # What is printed once of several; nothing is decided.
    ("cli/plan.py", "decision.why != last"),
    ("providers/netns/socket_server.py", "line not in self._logged"),
    # tomllib has the place of an error only in its words, before Python 3.14; they choose the place
    # and the advice that are printed.
    ("inventory/reader.py", "_PLACE.search(error)"),
    ("inventory/reader.py", "error.startswith(('Invalid value', 'Expected newline'))"),
    ("inventory/reader.py", "part in error.replace('\\n', '\\\\n')"),
}


def errors_in(tree: ast.AST) -> set[str]:
    """The names of variables and parameters that are errors."""
    names = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name
    }
    arguments = (node for node in ast.walk(tree) if isinstance(node, ast.arg) and node.annotation)
    return names | {
        argument.arg
        for argument in arguments
        if argument.annotation and ast.unparse(argument.annotation).endswith(("Error", "Exception"))
    }


def name_of(node: ast.expr) -> str:
    """The last part of a dotted name; empty if it is something else."""
    return getattr(node, "id", None) or getattr(node, "attr", "")


def reads_error(node: ast.AST, errors: Collection[str], texts: Collection[str] = ()) -> bool:
    """Whether the words of an error are part of an expression."""
    return any(
        (isinstance(part, ast.Attribute) and part.attr in ERROR_WORDS)
        or (
            isinstance(part, ast.Attribute)
            and part.attr == "args"
            and name_of(part.value) in errors
        )
        or (isinstance(part, ast.Name) and part.id in texts)
        or (
            isinstance(part, ast.Call)
            and name_of(part.func) in WORDS_OF_ERROR
            and any(isinstance(value, ast.Name) and value.id in errors for value in part.args)
        )
        for part in ast.walk(node)
    )


def error_texts(tree: ast.AST, errors: set[str]) -> Iterator[tuple[ast.FunctionDef, set[str]]]:
    """The functions of a module that it gives the words of an error, and as which parameters."""
    nodes = [*ast.walk(tree)]
    calls = [
        call
        for call in nodes
        if isinstance(call, ast.Call) and any(reads_error(part, errors) for part in call.args)
    ]
    for function in (node for node in nodes if isinstance(node, ast.FunctionDef)):
        names = [argument.arg for argument in function.args.args if argument.arg != "self"]
        texts = {
            name
            for call in calls
            if name_of(call.func) == function.name
            for name, value in zip(names, call.args, strict=False)
            if reads_error(value, errors)
        }
        if texts:
            yield function, texts


def parsed_errors_in(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    errors = errors_in(tree)
    for part, texts in [(tree, frozenset[str]()), *error_texts(tree, errors)]:
        for node in ast.walk(part):
            match node:
                case ast.Call(func=ast.Attribute(value=value, attr=name), args=arguments):
                    parses = name in PARSES - SHORTENS and any(
                        reads_error(part, errors, texts) for part in (value, *arguments)
                    )
                case ast.Compare(left=left, ops=operators, comparators=others):
                    parses = any(isinstance(operator, COMPARES) for operator in operators) and any(
                        reads_error(part, errors, texts) for part in (left, *others)
                    )
                case _:
                    parses = False
            if parses:
                yield ast.unparse(node)


def test_no_decision_is_made_by_the_words_of_an_error():
    expressions = {
        (path.relative_to(ROOT).as_posix(), expression)
        for path in sorted(ROOT.rglob("*.py"))
        for expression in parsed_errors_in(path.read_text())
    }
    assert expressions - PARSED_ERRORS == set()


@pytest.mark.parametrize(
    "condition",
    ["'host key' in str(error)", "error.happened.startswith('no')", "first.why == 'new'"],
)
def test_words_of_an_error_that_are_parsed_are_found(condition):
    assert [*parsed_errors_in(f"def f(error: LabError):\n    return {condition}")]


def test_words_of_an_error_that_another_function_is_given_are_found():
    source = """
def connect():
    try: open()
    except OSError as error: raise LabError(reason(error), hint(reason(error), True))

def hint(message, here):
    return any(sign in message.lower() for sign in SIGNS)
"""
    assert [*parsed_errors_in(source)] == ["sign in message.lower()"]


def made_without_subject(source: str) -> Iterator[int]:
    """The lines that make a difference of nothing."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="Difference"), keywords=keywords):
                if "subject" not in {keyword.arg for keyword in keywords}:
                    yield node.lineno


def test_every_difference_is_made_with_its_subject():
    lines = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted(ROOT.rglob("*.py"))
        for number in made_without_subject(path.read_text())
    ]
    assert lines == []
    assert [*made_without_subject("Difference(kind, fault, node, name)")] == [1]


def test_what_a_kind_means_is_in_its_record_alone():
    """A check of a room or of a plug-in declares its kinds; nothing else knows their names."""
    names = {kind.name for check in checks() for kind in check.kinds}
    names -= {kind.name for kind in OWN_KINDS}
    named = {
        (path.relative_to(ROOT).as_posix(), node.value)
        for package in ("explain", "facts", "matrix", "suites", "reports", "lifecycle", "cli")
        for path in sorted((ROOT / package).rglob("*.py"))
        if not {"checks", "faults"} & {*path.relative_to(ROOT).parts}
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in names
    }
    # A card without carrier follows from its other end, a card that is set down from nothing.
    assert named == {("explain/explainer.py", "link-down")}
