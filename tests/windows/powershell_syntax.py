"""PowerShell scripts as syntax trees, for the linter and the tests.

There is no PowerShell here. The grammar is tree-sitter's; it refuses some bare arguments that
PowerShell accepts (``$env:TEMP\\foo``, ``--flag=value``, a parameter whose name ends in digits), so
the project's scripts avoid them, and no parse error is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import tree_sitter
import tree_sitter_powershell
from tree_sitter import Node

FOLDER = Path(__file__).parents[2] / "images" / "windows"
_PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_powershell.language()))


@dataclass(frozen=True)
class Parameter:
    name: str
    kind: str | None


@dataclass(frozen=True)
class Function:
    name: str
    node: Node
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class Call:
    """A command; its name is None if computed."""

    name: str | None
    node: Node
    operator: str | None
    target: Node | None


@dataclass(frozen=True)
class Script:
    name: str
    source: bytes

    @cached_property
    def root(self) -> Node:
        return _PARSER.parse(self.source).root_node

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(walk(self.root))

    def text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("ascii", errors="replace")

    def of(self, *kinds: str) -> Iterator[Node]:
        return (node for node in self.nodes if node.type in kinds)

    @cached_property
    def errors(self) -> tuple[str, ...]:
        nodes = (node for node in self.nodes if node.is_error or node.is_missing)
        return tuple(f"{self.name}:{line(node)}: {self.text(node)[:60]!r}" for node in nodes)

    @cached_property
    def statements(self) -> tuple[Node, ...]:
        lists = [node for node in self.root.named_children if node.type == "statement_list"]
        return tuple(
            child for node in lists for child in node.named_children if child.type != "comment"
        )

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        return tuple(
            Function(self.text(node.named_children[0]), node, self.parameters(node))
            for node in self.of("function_statement")
        )

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        return tuple(self._call(node) for node in self.of("command"))

    def parameters(self, node: Node) -> tuple[Parameter, ...]:
        """Parameters of a function, a script block, or the script itself (its root)."""
        block = next((node for node in walk(node) if node.type == "param_block"), None)
        if block is None or _owner(block) != node:
            return ()
        return tuple(
            self._parameter(node) for node in walk(block) if node.type == "script_parameter"
        )

    def _parameter(self, node: Node) -> Parameter:
        variable = next(child for child in node.named_children if child.type == "variable")
        attributes = next(
            (child for child in node.named_children if child.type == "attribute_list"), None
        )
        kind = None
        for child in attributes.named_children if attributes else ():
            if child.named_children and child.named_children[0].type == "type_literal":
                kind = self.text(child)[1:-1].lower()
        return Parameter(self.text(variable)[1:], kind)

    def _call(self, node: Node) -> Call:
        named = {child.type: child for child in node.named_children}
        operator = named.get("command_invokation_operator")
        computed = named.get("command_name_expr")
        return Call(
            name=self.text(named["command_name"]) if "command_name" in named else None,
            node=node,
            operator=self.text(operator) if operator else None,
            target=computed.named_children[0] if computed else None,
        )

    def hash_table(self, variable: str) -> dict[str, str]:
        """Keys and value texts of a hash table that is assigned to a variable."""
        for node in self.of("assignment_expression"):
            if self.text(node.named_children[0]) != variable:
                continue
            body = next(node for node in walk(node) if node.type == "hash_literal_body")
            entries = (child for child in body.named_children if child.type == "hash_entry")
            return {
                self.text(entry.named_children[0]).strip("'"): self.text(entry.named_children[-1])
                for entry in entries
            }
        raise KeyError(variable)


@cache
def load(name: str) -> Script:
    return Script(name, (FOLDER / name).read_bytes())


def names(folder: str = "") -> tuple[str, ...]:
    """Names of scripts and modules in ``images/windows``, or in a subfolder."""
    paths = (FOLDER / folder).iterdir()
    return tuple(
        sorted(str(path.relative_to(FOLDER)) for path in paths if path.suffix in {".ps1", ".psm1"})
    )


@cache
def imported(name: str) -> Script:
    """The modules that a script imports, or that a module is used with."""
    first, second = load("hybridlab.psm1"), load("cluster/cluster.psm1")
    if name.startswith("cluster/") and name != second.name:
        return Script("modules.psm1", first.source + second.source)
    return first


def line(node: Node) -> int:
    return node.start_point.row + 1


def enclosing(node: Node, *kinds: str) -> Iterator[Node]:
    """Ancestors of these kinds, nearest first."""
    above = node.parent
    while above is not None:
        if above.type in kinds:
            yield above
        above = above.parent


def _owner(block: Node) -> Node | None:
    """The owner of a parameter block: a function, a script block, or the script."""
    return next(enclosing(block, "function_statement", "script_block_expression", "program"), None)


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from walk(child)
