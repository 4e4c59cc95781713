"""The project's linter for PowerShell: one function per rule, which yields its findings.

What PowerShell's own parser judges, such as parameters of commands, is in ``tests/powershell``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from powershell_syntax import Call, Script, enclosing, line, walk
from tables import table
from tree_sitter import Node

HEADER = (
    "Set-StrictMode -Version 3.0",
    "$ErrorActionPreference = 'Stop'",
    "$ProgressPreference = 'SilentlyContinue'",
)
_WORDS = table("powershell/words")
FORBIDDEN: dict[str, str] = _WORDS["forbidden"]
AUTOMATIC, PREFERENCES = ({*_WORDS[name].split()} for name in ("automatic", "preferences"))
_SECRET = re.compile(r"password|passwd|secret|credential|/passw", re.IGNORECASE)


def lint(script: Script) -> list[str]:
    """All findings in a script."""
    found = [*_bytes(script), *_header(script), *_ending(script), *_functions(script)]
    found += [*_variables(script), *_parameters(script)]
    for call in script.calls:
        found += [*_call(call), *_native(script, call)]
    return [f"{script.name}:{text}" for text in found]


def _bytes(script: Script) -> Iterator[str]:
    for number, text in enumerate(script.source.split(b"\n"), 1):
        if text.endswith(b"\r"):
            yield f"{number}: CR at the end of the line"
        if not text.isascii():
            yield f"{number}: not ASCII: Windows PowerShell would read it in its code page"


def _header(script: Script) -> Iterator[str]:
    first = tuple(script.text(node).strip() for node in script.statements[: len(HEADER)])
    for wanted in HEADER:
        if wanted not in first:
            yield f"1: '{wanted}' is not among the first statements"


def _ending(script: Script) -> Iterator[str]:
    if script.name.endswith(".psm1"):
        return
    last = script.text(script.statements[-1]) if script.statements else ""
    if not last.startswith("exit "):
        yield "0: the script does not end with an explicit exit"


def _functions(script: Script) -> Iterator[str]:
    for function in script.functions:
        where = line(function.node)
        if "[CmdletBinding()]" not in script.text(function.node):
            yield f"{where}: '{function.name}' has no [CmdletBinding()]"


def _call(call: Call) -> Iterator[str]:
    if call.name is not None and call.name.lower() in FORBIDDEN:
        yield f"{line(call.node)}: '{call.name}': {FORBIDDEN[call.name.lower()]}"


def _native_name(name: str) -> bool:
    return name.endswith((".exe", ".cmd", ".bat", ".com")) or "-" not in name


def _native(script: Script, call: Call) -> Iterator[str]:
    """Programs must be called through Invoke-Native, the only place that checks exit codes."""
    where = line(call.node)
    if call.name is not None and call.name.lower() == "invoke-native":
        if _SECRET.search(script.text(call.node)):
            yield f"{where}: a secret on a command line"
        return
    if call.name is not None and not _native_name(call.name.lower()):
        return
    if call.name is None and (call.operator != "&" or _is_block(script, call)):
        return
    after = [
        script.text(ancestor.next_named_sibling)
        for ancestor in _upwards(call.node)
        if ancestor.parent
        and ancestor.parent.type == "statement_list"
        and ancestor.next_named_sibling
    ]
    if not after or "$LASTEXITCODE" not in after[0]:
        yield f"{where}: a program whose exit code nobody reads: use Invoke-Native"


def _is_block(script: Script, call: Call) -> bool:
    """Whether the call is of a script block, not of a program."""
    if call.target is None or call.target.type == "script_block_expression":
        return call.target is not None
    variable = script.text(call.target).lower()
    function = next(enclosing(call.node, "function_statement"), script.root)
    for parameter in script.parameters(function):
        if f"${parameter.name}".lower() == variable:
            return parameter.kind == "scriptblock"
    text = script.text(function).lower()
    return re.search(rf"{re.escape(variable)}\s*=\s*\[scriptblock\]", text) is not None


def _upwards(node: Node | None) -> Iterator[Node]:
    while node is not None and node.type != "function_statement":
        yield node
        node = node.parent


def _variables(script: Script) -> Iterator[str]:
    """Variables that may be unset: strict mode ends a script at one that was never set."""
    assigned: dict[int, set[str]] = {}
    targets = list(_targets(script))
    yield from _unread(script, targets)
    for node, name in targets:
        scope = next(enclosing(node, "function_statement"), script.root)
        assigned.setdefault(scope.id, set()).add(name)
        plain = name.split(":")[-1]
        if plain in AUTOMATIC - {"null"} and name != "global:lastexitcode":
            yield f"{line(node)}: ${name} is PowerShell's own: nobody may set it"
        for parameter in script.parameters(scope):
            written = script.text(node).lstrip("$")
            if parameter.name != written and parameter.name.lower() == written.lower():
                yield (
                    f"{line(node)}: ${written} is the parameter ${parameter.name}: "
                    "case does not count"
                )
    for node in script.of("variable"):
        name = script.text(node).lstrip("$@").strip("{}").lower()
        if name.startswith("env:") or name in AUTOMATIC | PREFERENCES | {"global:lastexitcode"}:
            continue
        scopes = [script.root, *enclosing(node, "function_statement")]
        known = set().union(*(assigned.get(scope.id, set()) for scope in scopes))
        if name not in known and f"script:{name}" not in known:
            yield f"{line(node)}: ${name} is read and never set"


def _unread(script: Script, targets: list[tuple[Node, str]]) -> Iterator[str]:
    """Variables that are set but never read, which are often typing errors."""
    set_here = {node.id for node, _ in targets}
    read = {_bare(script, node) for node in script.of("variable") if node.id not in set_here}
    for node, name in targets:
        bare = name.removeprefix("script:")
        if bare not in read | PREFERENCES | {"null", "global:lastexitcode"}:
            yield f"{line(node)}: ${bare} is set and never read"


def _bare(script: Script, node: Node) -> str:
    return script.text(node).lstrip("$@").strip("{}").lower().removeprefix("script:")


def _targets(script: Script) -> Iterator[tuple[Node, str]]:
    for node in script.of("left_assignment_expression", "script_parameter"):
        for one in walk(node):
            if one.type == "variable" and not _indexes(one, node):
                yield one, script.text(one).lstrip("$").lower()
            if node.type == "script_parameter" and one.type == "script_parameter_default":
                break
    for node in script.of("foreach_statement"):
        variable = next(child for child in node.named_children if child.type == "variable")
        yield variable, script.text(variable).lstrip("$").lower()


def _indexes(variable: Node, target: Node) -> bool:
    """Whether the left side is a member or element of the variable: ``$x.y = ``, ``$x[$y] = ``."""
    parts = ("member_access", "element_access")
    return any(node.start_byte >= target.start_byte for node in enclosing(variable, *parts))


def _parameters(script: Script) -> Iterator[str]:
    for node in script.of("redirection"):
        function = next(enclosing(node, "function_statement"), None)
        if function is None or "Invoke-Native" not in script.text(function)[:40]:
            yield f"{line(node)}: a redirection outside Invoke-Native"
