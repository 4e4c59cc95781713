"""lab inventory and lab doctor, as far as no hypervisor is asked."""

import json
from pathlib import Path
from typing import Any

import pytest
from broken_files import BrokenFiles
from click.testing import CliRunner, Result

from lab._errors import LabError
from lab.cli.main import command
from lab.lifecycle import providers
from lab.providers.provider import Diagnosis

CASES = Path(__file__).parents[2] / "cases"
BROKEN = BrokenFiles(CASES / "inventory" / "broken.txt", ".toml", "inventory").read()
EVERYTHING = CASES / "inventory" / "valid" / "everything.toml"


def run(*words: str, **environment: str | None) -> Result:
    return CliRunner().invoke(
        command, words, prog_name="lab", standalone_mode=False, env=environment
    )


def test_valid_file_is_reported_as_valid():
    done = run("inventory", "check", str(EVERYTHING))
    assert done.return_value == 0
    assert done.stdout == f"{EVERYTHING}: valid, 2 hypervisors\n"


def test_every_finding_is_printed_and_the_code_is_2(tmp_path):
    file = BROKEN["many-at-once"].write(tmp_path)
    done = run("inventory", "check", str(file))
    assert done.return_value == 2
    assert len(done.stdout.splitlines()) == 8
    assert all(line.startswith(f"{file}:") for line in done.stdout.splitlines())
    assert done.stderr == f"{file} has 8 errors\n"


def test_findings_are_json_on_request(tmp_path):
    file = BROKEN["unknown-key-at-top"].write(tmp_path)
    done = run("inventory", "check", str(file), "--json")
    assert done.return_value == 2
    assert json.loads(done.stdout) == {
        "file": str(file),
        "valid": False,
        "findings": [
            {
                "key": ["ownr"],
                "line": 0,
                "col": 0,
                "what": 'unknown key "ownr" in the inventory',
                "hint": 'did you mean "owner"?',
            }
        ],
    }


def test_file_of_the_environment_is_checked():
    done = run("inventory", "check", HYBRIDLAB_INVENTORY=str(EVERYTHING))
    assert done.stdout == f"{EVERYTHING}: valid, 2 hypervisors\n"


def test_a_missing_file_is_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(
        *("inventory", "check"), HYBRIDLAB_INVENTORY=None, XDG_CONFIG_HOME=None, HOME=str(tmp_path)
    )
    assert isinstance(done.exception, LabError)
    assert done.exception.exit_code == 2
    assert "'lab inventory example'" in done.exception.hint


def test_inventory_is_shown_with_its_secrets_place_alone():
    done = run("inventory", "show", str(EVERYTHING))
    assert "hypervisor rack1: qemu+ssh://lab@rack1.example:2222/system" in done.stdout
    assert "secret domain-join: from variable DOMAIN_JOIN" in done.stdout
    shown: dict[str, Any] = json.loads(run("inventory", "show", str(EVERYTHING), "--json").stdout)
    assert shown["management"] == "10.66.0.0/16"
    assert [hypervisor["tags"] for hypervisor in shown["hypervisors"]] == [["ssd", "windows"], []]
    assert shown["secrets"]["domain-join"] == {"env": "DOMAIN_JOIN"}


FOUND = (
    Diagnosis("this machine", "vxlan", "ok", "tried"),
    Diagnosis("hypervisor 'rack1'", "clock", "warn", "9.0 s ahead", "timedatectl set-ntp true"),
    Diagnosis("hypervisor 'rack1'", "memory", "fail", "none", 'write memory = "1GiB"'),
)


@pytest.mark.parametrize(
    ("found", "code", "last"),
    [
        (FOUND, 4, "1 thing to fix first; 1 warning"),
        (FOUND[:2], 0, "labs can run here; 1 warning"),
        (FOUND[:1], 0, "labs can run here; 0 warnings"),
    ],
)
def test_doctor_shows_fixes_and_whether_labs_are_possible(found, code, last, monkeypatch):
    monkeypatch.setattr(providers, "examine", lambda *_: found)
    done = run("doctor")
    assert done.return_value == code
    assert done.stdout.splitlines()[-1] == last
    assert ("        try: timedatectl set-ntp true" in done.stdout.splitlines()) == (len(found) > 1)
    as_json = run("doctor", "--json")
    assert as_json.return_value == code
    assert [one["level"] for one in json.loads(as_json.stdout)] == [one.level for one in found]


def test_printed_example_is_a_valid_inventory(tmp_path):
    file = tmp_path / "lab.toml"
    file.write_text(run("inventory", "example").stdout)
    assert run("inventory", "check", str(file)).stdout == f"{file}: valid, 2 hypervisors\n"
