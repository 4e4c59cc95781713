"""The files that run a night by themselves say what systemd, the CIs and `lab` understand."""

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import click
import pytest
from processes import run_program
from ruamel.yaml import YAML

from lab.cli.main import command as lab

ROOT = Path(__file__).parents[2]
FILES = ROOT / "tools" / "nightly"
ANALYZE = shutil.which("systemd-analyze")


def document(name: str) -> dict[str, Any]:
    found = YAML(typ="safe").load(FILES / name)
    assert isinstance(found, dict)
    return found


def settings(name: str) -> dict[str, list[str]]:
    """Every value of a unit file, by its key."""
    found: dict[str, list[str]] = {}
    for line in (FILES / name).read_text().splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_understands_the_units(tmp_path):
    for path in FILES.glob("hybridlab-nightly.*"):
        text = path.read_text().replace("/opt/hybridlab/.venv/bin/lab", "/bin/true")
        (tmp_path / path.name).write_text(text)
    units = sorted(str(path) for path in tmp_path.iterdir())
    assert len(units) == 2
    done = run_program(
        [str(ANALYZE), "verify", "--man=no", "--recursive-errors=no", *units], check=False
    )
    own = [line for line in done.stderr.splitlines() if "hybridlab" in line]
    assert (done.returncode, own) == (0, [])
    when = settings("hybridlab-nightly.timer")["OnCalendar"][0]
    run_program([str(ANALYZE), "calendar", when])


@pytest.mark.room
def test_every_command_of_the_service_is_one_of_labs():
    service = settings("hybridlab-nightly.service")
    for line in (*service["ExecStartPre"], *service["ExecStart"]):
        program, *words = shlex.split(line.lstrip("-"))
        assert program.endswith("/.venv/bin/lab")
        with click.Context(lab) as context:
            command = lab.get_command(context, words[0])
            assert command is not None
            made = command.make_context(words[0], list(words[1:]))
            if isinstance(command, click.Group):
                inner = command.get_command(made, words[1])
                assert inner is not None
                inner.make_context(words[1], words[2:])


def test_only_the_night_itself_is_stopped():
    service = settings("hybridlab-nightly.service")
    assert service["KillMode"] == ["mixed"]
    assert service["Type"] == ["oneshot"]


def test_github_recipe_runs_and_keeps_the_night_on_a_runner_of_ones_own():
    found = document("github.yml")
    assert "schedule" in found["on"]
    job = found["jobs"]["nightly"]
    assert "self-hosted" in job["runs-on"]
    steps = job["steps"]
    assert any("make nightly" in step.get("run", "") for step in steps)
    kept = next(step for step in steps if "upload-artifact" in step.get("uses", ""))
    assert kept["if"] == "always()"


def test_gitlab_recipe_runs_and_keeps_the_night_even_when_it_is_red():
    job = document("gitlab.yml")["nightly"]
    assert any("make nightly " in line for line in job["script"])
    assert job["artifacts"]["when"] == "always"
    assert job["artifacts"]["reports"]["junit"] == "night/junit.xml"


@pytest.mark.parametrize(
    "name", ["github.yml", "gitlab.yml", "Jenkinsfile", "hybridlab-nightly.service"]
)
def test_recipes_for_hypervisors_make_a_bundle_and_ask_for_no_windows_media(name):
    text = (FILES / name).read_text()
    made = re.search(r"lab bundle create (.*?)'?$", text, re.MULTILINE)
    assert made is not None
    assert re.search(r"ONLY=linux|lab nightly --only linux", text)
    words = shlex.split(made[1])
    assert words[:2] == ["--os", "linux"]
    assert {words[at + 1] for at, word in enumerate(words) if word == "--with"} == {"calico", "ovn"}
    assert text.index("bundle create") < text.rindex("nightly")
    assert "lab gc --older-than 2d --yes" in text


def test_jenkins_recipe_is_balanced_and_keeps_the_night():
    text = (FILES / "Jenkinsfile").read_text()
    code = re.sub(r"'[^']*'|//.*", "", text)
    for opening, closing in ("{}", "()"):
        assert code.count(opening) == code.count(closing) > 0
    assert (
        text.index("make nightly") < text.index("always {") < text.index("junit 'night/junit.xml'")
    )
    # a step that fails ends its block
    assert text.index("archiveArtifacts") < text.index("cleanup {") < text.index("lab gc")


@pytest.mark.parametrize("path", sorted(FILES.iterdir()), ids=lambda path: path.name)
def test_variables_given_to_make_are_those_of_the_makefile(path):
    known = set(re.findall(r"^([A-Z]+) *\?=", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in re.findall(r"make nightly (.*)", path.read_text()):
        assert set(re.findall(r"\b([A-Z]+)=", words)) <= known
