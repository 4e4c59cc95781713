"""Whatever stands in a scenario file, loading it says what is wrong and never breaks."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lab._errors import ScenarioError
from lab.scenario.loader import find, load, shipped
from lab.scenario.source import parse

EVERYTHING = Path(__file__).parents[2] / "cases" / "scenario" / "valid" / "everything.yaml"
TEXTS = [path.read_bytes() for path in (*map(find, shipped()), EVERYTHING)]


def _trees() -> list[Any]:
    documents = [parse(text)[0] for text in TEXTS]
    return [document.value for document in documents if document]


TREES = _trees()

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=10**30, max_value=10**40),
    st.floats(),
    st.text(max_size=20),
    st.text(alphabet="\0\ud800\u202e\x85\u2028é\U0001d4b3a.-/:*[", max_size=8),
    st.sampled_from(
        [
            "",
            "0.0.0.0/0",
            "255.255.255.255/32",
            "::/0",
            "1.36",
            "1.0",
            "1.999",
            "*",
            "[",
            "[!a",
            "[z-a]",
            "*a" * 20,
            "0.0.0.0/32",
            "255.255.255.254/31",
            "x" * 300,
        ]
    ),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("scenario") / "random.yaml"


def load_or_findings(file: Path, raw: bytes) -> list[str]:
    file.write_bytes(raw)
    try:
        load(file)
    except ScenarioError as error:
        str(error).encode("utf-8")
        return [*error.lines]
    return []


def places(node: object, key: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(node, dict):
        children = [*node.items()]
    else:
        children = [*enumerate(node)] if isinstance(node, list) else []
    below = [place for name, child in children for place in places(child, (*key, name))]
    return [key, *below] if key else below


def mutate(tree: Any, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(places(tree)))
    parent = tree
    for name in key[:-1]:
        parent = parent[name]
    what = data.draw(st.sampled_from(["drop", "replace", "rename", "repeat"]))
    if what == "drop":
        parent.pop(key[-1])
    elif what == "replace":
        parent[key[-1]] = data.draw(JUNK)
    elif isinstance(parent, list):
        parent.append(copy.deepcopy(parent[key[-1]]))
    else:
        parent[data.draw(st.text(max_size=10))] = parent[key[-1]]


@settings(max_examples=60)
@given(data=st.data())
def test_mutated_tree_loads_or_is_refused_with_findings(file, data):
    tree = copy.deepcopy(data.draw(st.sampled_from(TREES)))
    for _ in range(data.draw(st.integers(1, 4))):
        if places(tree):
            mutate(tree, data)
    for line in load_or_findings(file, json.dumps(tree).encode()):
        assert re.fullmatch(rf"{file}:\d+:\d+: .+; .+", line), line
        assert line.isprintable(), line


@settings(max_examples=60)
@given(
    text=st.sampled_from(TEXTS),
    start=st.floats(0, 1),
    length=st.integers(0, 40),
    junk=st.one_of(
        st.binary(max_size=8),
        st.sampled_from(
            [b"\t", b"- ", b": ", b"\n", b'"', b"[", b"{", b"&a ", b"*a", b"!x ", b"? "]
        ),
        st.text(max_size=6).map(lambda text: text.encode("utf-8", "surrogatepass")),
    ),
)
@example(text=b'a: "\\UFFFFFFFF"', start=1.0, length=0, junk=b"")
@example(text=b"%YAML 3.0\n---\na: 1", start=1.0, length=0, junk=b"")
@example(text=b"a: " + b"9" * 5000, start=1.0, length=0, junk=b"")
@example(text=b"a: 1.5e999", start=1.0, length=0, junk=b"")
@example(text=b"[" * 100_000, start=1.0, length=0, junk=b"")
@example(text=b"{" * 100_000, start=1.0, length=0, junk=b"")
@example(text=b"- " * 100_000, start=1.0, length=0, junk=b"")
@example(text=b"a:\n" * 20_000, start=1.0, length=0, junk=b"")
def test_mutated_bytes_load_or_are_refused_with_findings(file, text, start, length, junk):
    at = int(start * len(text))
    load_or_findings(file, text[:at] + junk + text[at + length :])
