"""Find and load scenarios; all errors are reported at once, each with its position."""

from __future__ import annotations

import errno
import json
import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from lab._dataclass import dataclass
from lab._errors import ScenarioError, UsageError
from lab.scenario import kubeinit_spec, rules, source, validation
from lab.scenario.findings import Document, FileFinding, Problem, did_you_mean, lines, quoted
from lab.scenario.foreign import ForeignFile, recognise
from lab.scenario.scenario import Scenario

SUFFIX = ".yaml"


@dataclass(frozen=True, slots=True)
class SpecString:
    """A spec string of Kubeinit's, used instead of a scenario file."""

    written: str

    def __str__(self) -> str:
        return self.written


@dataclass(frozen=True, slots=True)
class HeldText:
    """The text of a scenario from another source than a file, such as the result of a run."""

    text: str
    holder: str
    """Shown in messages instead of a file name."""

    def __str__(self) -> str:
        return self.holder


Wanted = Path | SpecString | HeldText
"""A scenario to load: a file, a spec string or a text."""


def no_topology_check(scenario: Scenario) -> Iterable[Problem]:  # noqa: ARG001  it reads nothing
    """Find no problems: for callers that do not know the topologies."""
    return ()


def load(
    wanted: Wanted, *, topology_check: rules.Check = no_topology_check, original: str = ""
) -> Scenario:
    """Load a scenario.

    ``wanted``: the file, spec string or text. Messages show a path as given here. ``original``: the
    file that it is a copy of, which its exceptions cite.
    ``topology_check``: finds errors in the topology and its parameters, as problems by key path,
    such as ``("topology", "vni")``. It is not called if a part that it may read is broken.

    Raises ScenarioError with every finding, in file order.
    """
    scenario, findings = check(wanted, topology_check=topology_check, original=original)
    if scenario is None or findings:
        raise ScenarioError(f"reading scenario {quoted(wanted)}", describe(wanted, findings))
    return scenario


def describe(wanted: Wanted, findings: tuple[FileFinding, ...]) -> tuple[str, ...]:
    """Every finding of one scenario, ready to print."""
    if isinstance(wanted, SpecString):
        return kubeinit_spec.describe(wanted.written, findings)
    return lines(str(wanted), findings)


def text_of(wanted: Wanted) -> str:
    """The text of a scenario that can be loaded."""
    if isinstance(wanted, Path):
        return wanted.read_text(encoding="utf-8")
    if isinstance(wanted, HeldText):
        return wanted.text
    read, findings = kubeinit_spec.read(wanted.written)
    assert read is not None, findings
    return kubeinit_spec.to_yaml(read)


def check(
    wanted: Wanted, *, topology_check: rules.Check = no_topology_check, original: str = ""
) -> tuple[Scenario | None, tuple[FileFinding, ...]]:
    """The scenario, with stand-ins for broken parts, and all findings; None if it is unreadable.

    A file of another tool has one finding, which names the tool.
    """
    scenario, findings = _check(wanted, topology_check, original)
    if findings and isinstance(wanted, Path) and (file := _recognise(wanted)):
        way = file.way.replace("FILE", shlex.quote(str(wanted))) if file.begins else file.way
        message = f"this is {file.name}, not a scenario"
        return None, (FileFinding((), 0, 0, message, way),)
    return scenario, findings


def _recognise(path: Path) -> ForeignFile | None:
    with suppress(source.StopError, OSError):
        return recognise(source.read_bytes(path, source.SCENARIO))
    return None


def _check(
    wanted: Wanted, topology_check: rules.Check, original: str
) -> tuple[Scenario | None, tuple[FileFinding, ...]]:
    document, findings = _load_document(wanted)
    if document is None:
        return None, findings
    if not document.value.keys() & Scenario.model_fields.keys():  # do not quote a foreign file
        message = "this is not a scenario: it has none of the keys of a scenario"
        return None, (FileFinding((), 0, 0, message, 'begin it with "name: my-lab"'),)
    validated = validation.parse_document(document, Scenario, source.SCENARIO)
    problems = [*validated.problems]
    scenario = validated.model
    if scenario is not None:
        scenario = _with_places(scenario, Path(original or str(wanted)).name, document)
        problems += rules.problems(scenario, validated.tainted, topology_check)
    return scenario, (*findings, *(document.finding(problem) for problem in problems))


def _with_places(scenario: Scenario, file: str, document: Document) -> Scenario:
    """The scenario with the line of each node group and assertion, and each exception's source."""

    def line(*key: str | int) -> int:
        return document.position(key).line

    return scenario.replace(
        nodes=tuple(
            group.replace(line=line("nodes", index)) for index, group in enumerate(scenario.nodes)
        ),
        exceptions=tuple(
            limit.replace(
                id=f"{scenario.name}-exception-{index + 1}",
                source=f"{file}:{line('exceptions', index)}",
                exception=index + 1,
            )
            for index, limit in enumerate(scenario.exceptions)
        ),
        assertions=tuple(
            assertion.replace(line=line("assertions", index))
            for index, assertion in enumerate(scenario.assertions)
        ),
    )


def _load_document(wanted: Wanted) -> tuple[Document | None, tuple[FileFinding, ...]]:
    if isinstance(wanted, Path):
        return source.read(wanted)
    if isinstance(wanted, HeldText):
        return source.parse(wanted.text.encode(errors="surrogatepass"))
    read, findings = kubeinit_spec.read(wanted.written)
    return (None, findings) if read is None else source.parse(kubeinit_spec.to_yaml(read).encode())


def meant(written: str) -> Wanted:
    """Resolve an argument of the command line: a shipped scenario, a file, or a spec string.

    Raises UsageError when it is none of them, with the nearest name and all shipped scenarios.
    """
    if kubeinit_spec.is_meant(written) and not _names_a_file(written):
        return SpecString(written)
    return find(written)


def find(name_or_path: str) -> Path:
    """The file of a scenario's name or path.

    A shipped scenario's name takes precedence. Anything that has a slash, ends in ``.yaml`` or
    ``.yml``, or is an existing file is a path.

    Raises UsageError when it is neither, with the nearest name and all shipped scenarios.
    """
    if name_or_path in shipped():
        return _directory() / f"{name_or_path}{SUFFIX}"
    if _names_a_file(name_or_path):
        return Path(name_or_path)
    known = ", ".join(shipped())
    hint = did_you_mean(name_or_path, shipped(), "give the path of a scenario file, or a name")
    end = "" if hint.endswith("?") else "."
    raise UsageError(
        f"looking for scenario {quoted(name_or_path)}",
        "no shipped scenario and no file has this name",
        f"{hint}{end} The shipped ones are: {known}; or write a spec string of Kubeinit's, such as "
        "k8s-libvirt-1-2-2",
    )


def _names_a_file(written: str) -> bool:
    path = Path(written)
    return "/" in written or path.suffix in {SUFFIX, ".yml"} or _is_file(path)


def is_shipped(path: Path) -> bool:
    """Whether the file is one of the scenarios that hybridlab ships."""
    return path.stem in shipped() and path.parent.resolve() == _directory().resolve()


def shipped() -> tuple[str, ...]:
    """Names of the shipped scenarios, in alphabetical order."""
    return tuple(sorted(path.stem for path in _directory().glob(f"*{SUFFIX}")))


SCHEMA_FILE = "scenario.schema.json"


def schema_file() -> Path:
    """The JSON Schema of scenario files, as :command:`lab schema` prints it."""
    return _directory() / SCHEMA_FILE


def _directory() -> Path:
    """The directory of shipped scenarios: in the package (wheel), or beside it (checkout)."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "scenarios"
    return inside if inside.is_dir() else package.parent / "scenarios"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except ValueError:
        return False
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # a spec string may be longer than a file name
            raise
        return False


_LEFT_OUT: tuple[object, ...] = (None, [], {})


def to_yaml(scenario: Scenario, *comment: str) -> str:
    """Write a scenario as YAML, with lines of comment at the top.

    Values are written as JSON, which is valid YAML, with one top-level key and one node per line.
    Text is always in quotes, so that no version becomes a number.
    """
    lines = [f"# {_one_line(line)}" if line else "#" for line in comment]
    document = scenario.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for key, value in document.items():
        if value in _LEFT_OUT:
            continue
        if isinstance(value, list):
            lines += [f"{key}:", *(f"  - {_inline(entry)}" for entry in value)]
        elif isinstance(value, dict):
            lines += [f"{key}:", *(f"  {name}: {_inline(item)}" for name, item in value.items())]
        else:
            lines.append(f"{key}: {_inline(value)}")
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    """The text with unprintable characters and line ends replaced, for a comment."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _inline(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
