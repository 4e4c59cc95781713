"""A module knows only what stands left of it in the flow."""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from processes import run_program

import lab

ROOT = Path(lab.__file__).parent
FLOW = (
    "state",
    "scenario",
    "inventory",
    "plan",
    "topology",
    "shells",
    "facts",
    "providers",
    "matrix",
    "explain",
    "suites",
    "reports",
    "lifecycle",
    "cli",
    "machines",
    "windows",
)
"""The core, and then the rooms, which may import all of it."""
ROOMS = {"machines", "windows"}
"""What an installation may lack."""
EVERYONE = {"_dataclass", "_deadline", "_errors", "_log", "_plugins"}
THE_DOERS = {"providers", "shells", "machines", "windows"}
ONLY_DOERS = {"subprocess", "socket", "ctypes", "libvirt", "paramiko", "winrm", "pycdlib"}
EXCEPTED = {ROOT / "lifecycle" / "nightly.py": {"subprocess"}}
"""It starts the lab itself: docs/decisions/0008-nightly-runs-commands.md."""
SLOW = {"rich", "jinja2", "pytest", "dns", "pydantic", "ruamel", "sqlite3"} | ONLY_DOERS


@dataclass(frozen=True)
class Module:
    """What one file of the package imports, anywhere in it and at its top."""

    path: Path
    every: frozenset[str]
    top: frozenset[str]

    @property
    def own(self) -> str:
        return self.path.relative_to(ROOT).parts[0]


@pytest.fixture(scope="module")
def modules():
    return tuple(read(path) for path in sorted(ROOT.rglob("*.py")))


def read(path: Path) -> Module:
    tree = ast.parse(path.read_text())
    return Module(path, frozenset(imports(ast.walk(tree))), frozenset(imports(tree.body)))


def imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def packages_of(names: Iterable[str]) -> set[str]:
    """The packages of ours, or modules beside them, among what is imported."""
    return {name.split(".")[1] for name in names if name.startswith("lab.")}


def roots_of(names: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def test_no_modules_import_each_other_in_a_circle(modules):
    """Imports inside functions, and those for types alone, count like the others."""
    names = {module_name(module.path): module for module in modules}
    later = {name: module.every & names.keys() - {name} for name, module in names.items()}
    try:
        TopologicalSorter(later).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_modules_import_only_what_their_place_in_the_flow_allows(modules):
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages | ROOMS == set(FLOW)
    wrong = {str(module.path): found for module in modules if (found := forbidden(module))}
    assert not wrong


def forbidden(module: Module) -> set[str]:
    """The imports of a module that it may not have."""
    packages, found = packages_of(module.every), set[str]()
    if module.own in FLOW:
        found |= packages & set(FLOW[FLOW.index(module.own) + 1 :])
    if module.own not in THE_DOERS:
        found |= roots_of(module.every) & ONLY_DOERS - EXCEPTED.get(module.path, set())
    if module.own == "state":
        found |= packages - {"state"} - EVERYONE
    if module.path.parent in (ROOT / "cli", ROOT / "machines" / "commands"):
        found |= roots_of(module.top) & SLOW
    return found


@pytest.mark.room
def test_labs_of_namespaces_need_no_package_of_an_extra():
    """Every command asks every provider which labs there are."""
    program = """
import re
import sys
sys.modules.update(dict.fromkeys(
    ("kubernetes", "libvirt", "paramiko", "pycdlib", "requests", "urllib3", "winrm")
))
from lab.lifecycle import api
from lab.lifecycle.providers import Providers
providers = Providers()
print(*(providers[name].name for name in providers))
"""
    said = run_program([sys.executable, "-c", program], check=False)
    made = said.stdout.split()
    assert made == ["attached", "fake", "libvirt", "netns", "nspawn"], said.stderr


IMPORTED = re.compile(r"^\s*(?:from|import) (lab(?:\.\w+)+)", re.MULTILINE)


@pytest.mark.room
@pytest.mark.parametrize("folder", ["tests", "tools", "benchmarks", "examples"])
def test_every_module_that_is_imported_exists_also_in_the_text_of_other_programs(folder):
    """Tests run programs from strings, which no linter reads."""
    imports = {
        (path.relative_to(ROOT.parent).as_posix(), name)
        for path in sorted((ROOT.parent / folder).rglob("*.py"))
        for name in IMPORTED.findall(path.read_text(encoding="utf-8"))
    }
    modules = {name for _, name in imports}
    missing = {name for name in modules if not _exists(name)}
    assert {(path, name) for path, name in imports if name in missing} == set()


def _exists(module: str) -> bool:
    path = ROOT.parent.joinpath(*module.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def test_no_folder_beside_a_test_hides_a_library():
    """Pytest puts the folder of each test on the path, where `libvirt/` would be a package."""
    folders = {path.parent for path in (ROOT.parent / "tests").rglob("test_*.py")}
    hidden = {path for each in folders for path in each.iterdir() if path.name in ONLY_DOERS}
    assert not {path for path in hidden if path.is_dir()}
