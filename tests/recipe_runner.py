"""Run a recipe of tools/nightly as its CI would: from a fresh clone, with an empty home.

    python tests/recipe_runner.py github-hosted.yml --scenarios overlay
    python tests/recipe_runner.py action.yml --scenarios overlay

The commands are read out of the recipe itself. What changes the machine as a whole (sysctl,
modprobe, apt-get) is printed and not run, and so is every command that has a word of ``--skip``.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "tools" / "nightly"
ACTION = "action.yml"
SECONDS = 900
NOT_HERE = ("sysctl", "modprobe", "apt-get")
DOCKER_UMASK = 0
"""GitLab's Docker executor clones with it, so that everyone may write the whole checkout."""
INVENTORY = '[hypervisors.here]\nuri = "qemu:///system"\n'


@dataclass(frozen=True)
class Command:
    """One command of a recipe; ``always`` is run also after one that failed."""

    text: str
    always: bool = False
    may_fail: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Job:
    """What a recipe does, and the variables that its CI sets."""

    commands: list[Command]
    variables: dict[str, str] = field(default_factory=dict)


def read_recipe(name: str, clone: Path, home: Path, output: str = "night") -> Job:
    """The commands of a recipe, in their order. ``output``: an input of the action."""
    if name == ACTION:
        return _action(YAML(typ="safe").load(clone / ACTION), clone, home, output)
    path = clone / "tools" / "nightly" / name
    if name.endswith(".service"):
        return _service(path.read_text(), clone, home)
    if name == "Jenkinsfile":
        return _jenkins(path.read_text())
    document = YAML(typ="safe").load(path)
    return _github(document) if "jobs" in document else _gitlab(document, clone)


def _github(document: Mapping[str, Any]) -> Job:
    (job,) = document["jobs"].values()
    commands = [
        Command(step["run"], always=step.get("if") == "always()")
        for step in job["steps"]
        if "run" in step
    ]
    variables = {**document.get("env", {}), "GITHUB_RUN_ID": "1", "GITHUB_RUN_ATTEMPT": "1"}
    return Job(commands, variables)


def _action(document: Mapping[str, Any], clone: Path, home: Path, output: str) -> Job:
    """A composite action's steps, with the values of its inputs where its expressions stand."""
    inputs = {name: one.get("default", "") for name, one in document["inputs"].items()}
    inputs |= {"scenarios": "$SCENARIOS", "output": output}
    known = {f"${{{{ inputs.{name} }}}}": value for name, value in inputs.items()}
    known["${{ github.action_path }}"] = str(clone)
    steps = document["runs"]["steps"]
    assert all(step["shell"] == "bash" and "${{" not in step["run"] for step in steps)
    commands = [
        Command(
            step["run"],
            variables={
                name: known[value]
                for name, value in step.get("env", {}).items()
                if known[value] != "$SCENARIOS"  # it is set already
            },
        )
        for step in steps
    ]
    written = {"RUNNER_TEMP": str(home), "GITHUB_OUTPUT": str(home / "output")}
    written |= {"GITHUB_STEP_SUMMARY": str(home / "summary.md")}
    return Job(commands, written)


def _gitlab(document: Mapping[str, Any], clone: Path) -> Job:
    (job,) = document.values()
    commands = [Command(text) for text in (*job.get("before_script", ()), *job["script"])]
    commands += [Command(text, always=True) for text in job.get("after_script", ())]
    variables = {"CI_PROJECT_DIR": str(clone), "CI_JOB_ID": "1", **job.get("variables", {})}
    return Job(commands, variables)


def _jenkins(text: str) -> Job:
    stages, _, post = text.partition("post {")
    commands = [Command(found) for found in re.findall(r"sh '(.*)'", stages)]
    commands += [Command(found, always=True) for found in re.findall(r"sh '(.*)'", post)]
    return Job(commands, {"BUILD_TAG": "jenkins-nightly-1"})


def _service(text: str, clone: Path, home: Path) -> Job:
    """The unit's commands, after the one that its documentation wants done once."""
    text = text.replace("/opt/hybridlab", str(clone)).replace("%S", str(home / "lib"))
    pairs = [line.partition("=") for line in text.splitlines() if line and line[0] not in "#["]
    commands = [Command("make nightly-setup")]
    commands += [
        Command(value.lstrip("-"), may_fail=value.startswith("-"))
        for key, _, value in pairs
        if key in {"ExecStartPre", "ExecStart"}
    ]
    set_here = [value.partition("=") for key, _, value in pairs if key == "Environment"]
    return Job(commands, {key: value for key, _, value in set_here})


def run_recipe(  # noqa: PLR0913  what a CI gives to a recipe
    name: str,
    work: Path,
    scenarios: str,
    *,
    skip: Sequence[str] = (),
    inventory: str = "",
    output: str = "night",
) -> tuple[int, Path]:
    """Run a recipe; its exit code, and the clone with what it left there.

    Parameters
    ----------
    name
        A file of tools/nightly.
    work
        An empty directory.
    scenarios
        The only ones of the night.
    skip
        Commands with one of these words are not run.
    inventory
        Of the account that the recipe runs as.
    output
        The directory for the reports, an input of the action.

    """
    clone, home = work / "clone", work / "home"
    home.mkdir()
    path = ROOT / ACTION if name == ACTION else RECIPES / name
    umask = DOCKER_UMASK if "\n  image:" in path.read_text() else -1
    words = ["git", "clone", "--quiet", str(ROOT), str(clone)]
    subprocess.run(words, umask=umask, check=True, timeout=60)
    if inventory:
        there = home / ".config" / "hybridlab" / "lab.toml"
        there.parent.mkdir(parents=True)
        there.write_text(inventory)
    job = read_recipe(name, clone, home, output)
    environment = {**_own_environment(), **job.variables, "HOME": str(home), "SCENARIOS": scenarios}
    code = 0
    for command in job.commands:
        if code and not command.always:
            continue
        text = _narrowed(command.text, scenarios)
        if left_out := next((word for word in (*skip, *NOT_HERE) if word in text), ""):
            _tell(f"NOT RUN, for '{left_out}': {text}")
            continue
        _tell(f"$ {text}")
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", text],
            cwd=clone,
            env={**environment, **command.variables},
            stdin=subprocess.DEVNULL,
            umask=umask,
            timeout=SECONDS,
            check=False,
        )
        _tell(f"exit code {done.returncode}")
        code = code or (0 if command.may_fail else done.returncode)
    return code, clone


def _own_environment() -> dict[str, str]:
    """What a bare machine has, and how it reaches a package index."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    python = str(Path(sys.executable).resolve())
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHON": python, **kept}


def _narrowed(text: str, scenarios: str) -> str:
    """A command that names no scenarios, which are all, with those to be run."""
    names_all = re.search(r"/lab nightly\b", text) and "$SCENARIOS" not in text
    return f"{text} {scenarios}" if names_all else text


def _tell(line: str) -> None:
    print(line, flush=True)


def _words() -> Iterator[str]:
    yield ACTION
    yield from (path.name for path in RECIPES.iterdir() if path.suffix != ".timer")


def main() -> int:
    """Run the recipe that is named, and say what it left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", choices=sorted(_words()))
    parser.add_argument("--scenarios", default="overlay")
    parser.add_argument("--skip", action="append", default=[], metavar="WORD")
    parser.add_argument("--hypervisor", action="store_true", help="Name this machine's libvirt.")
    namespace = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        code, clone = run_recipe(
            namespace.recipe,
            Path(work),
            namespace.scenarios,
            skip=namespace.skip,
            inventory=INVENTORY if namespace.hypervisor else "",
        )
        for path in sorted(clone.glob("night/*")):
            _tell(f"kept: {path.relative_to(clone)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
