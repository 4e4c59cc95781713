"""What 'lab validate' says at its end, in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.cli.main import main


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (("wrong.yaml",), "the scenario has errors\n"),
        (("wrong.yaml", "overlay"), "1 of 2 scenarios has errors\n"),
        (("wrong.yaml", "worse.yaml", "overlay"), "2 of 3 scenarios have errors\n"),
        (("overlay",), ""),
    ],
)
def test_how_many_scenarios_have_errors(files, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("wrong.yaml", "worse.yaml"):
        Path(name).write_text("name: x\n", encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["validate", *files])
    assert ended.value.code == (2 if told else 0)
    assert capsys.readouterr().err == told
