"""`lab validate` for other programs: GitHub, code scanning, and pre-commit."""

import json
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lab.cli.main import main

ROOT = Path(__file__).parents[3]
WRONG = "name: bad\nnodes: []\n"


def validate(*words: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(["validate", *words])
    return ended.value.code


@pytest.fixture
def bad(tmp_path, monkeypatch):
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text(WRONG)
    return "bad.yaml"


def test_findings_are_annotations_for_github(bad, capsys):
    assert validate("--format", "github", bad, "overlay") == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(line.startswith("::error file=bad.yaml,line=") for line in lines)
    assert any("line=2,col=1" in line for line in lines)


def test_findings_are_a_log_for_code_scanning(bad, capsys):
    assert validate("--format", "sarif", bad, "overlay") == 2
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    regions = [result["locations"][0]["physicalLocation"]["region"] for result in run["results"]]
    assert {"startLine": 2, "startColumn": 1} in regions
    assert validate("--format", "sarif", "overlay") == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["results"] == []


def test_the_format_json_is_that_of_the_option(bad, capsys):
    printed = []
    for words in (("--json",), ("--format", "json"), ("--json", "--format", "json")):
        assert validate(*words, bad) == 2
        printed.append(capsys.readouterr().out)
    assert len(set(printed)) == 1
    assert json.loads(printed[0])[0]["valid"] is False
    assert validate("--json", "--format", "sarif", bad) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_the_command_has_a_second_name():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == dict.fromkeys(("lab", "hybridlab"), "lab.__main__:start")


@pytest.mark.parametrize("form", ["bug.yml", "feature.yml"])
def test_forms_of_issues_are_as_github_wants_them(form):
    document = YAML(typ="safe").load(ROOT / ".github" / "ISSUE_TEMPLATE" / form)
    assert {"name", "description", "body"} == set(document)
    fields = [part for part in document["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in fields}) == len(fields)
    assert all(part["attributes"]["label"] for part in fields)


def test_the_hook_of_pre_commit_is_a_command_of_ours():
    (hook,) = YAML(typ="safe").load(ROOT / ".pre-commit-hooks.yaml")
    assert hook["entry"].split() == ["lab", "validate"]
    hooks = YAML(typ="safe").load(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    assert hook["files"] in [each.get("files") for each in hooks]
