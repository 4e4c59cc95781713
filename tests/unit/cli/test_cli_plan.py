"""What ``lab plan`` prints of the steps, and ``lab validate`` at its end."""

from pathlib import Path

import pytest

from lab._errors import PreflightError
from lab.cli.main import main
from lab.cli.plan import between_lines, step_lines
from lab.lifecycle import api
from lab.lifecycle.compilation import compile_scenario
from lab.lifecycle.up import Decision
from lab.scenario.loader import find

DEAD = "the lab is broken: 'bird' on 'master' has ended; the end of its log:\n    one\n    two"


def test_a_reason_of_many_lines_is_printed_once():
    decisions = [Decision("holder", "run", DEAD), Decision("network", "run", DEAD)]
    assert list(step_lines(decisions)) == [
        f"  holder   run   {DEAD}",
        "  network  run   the lab is broken: 'bird' on 'master' has ended",
    ]


def test_a_reason_of_one_line_is_printed_for_every_step():
    decisions = [Decision(step, "run", "new") for step in ("holder", "ready")]
    assert list(step_lines(decisions)) == ["  holder  run   new", "  ready   run   new"]


@pytest.mark.parametrize(
    ("real", "told"),
    [
        (
            False,
            [
                "\nhypervisors: hypervisor-01 203.0.113.1, hypervisor-02 203.0.113.2",
                "MTU: 1500 between hypervisors, 1450 between nodes, 1400 of pods",
            ],
        ),
        (
            True,
            [
                "\nhypervisors: those of the inventory, in order",
                "MTU: 1450 between nodes, 1400 of pods",
            ],
        ),
    ],
)
def test_real_hypervisors_are_not_shown_with_addresses_of_emulated_ones(real, told):
    drawn = compile_scenario("k8s-libvirt-1-2-2,compute.os=linux", real=real)
    assert list(between_lines(drawn.plan, drawn.intent)) == told


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (("wrong.yaml",), "the scenario has 5 errors\n"),
        (("wrong-vni.yaml",), "the scenario has 1 error\n"),
        (("wrong.yaml", "overlay"), "1 of 2 scenarios has errors\n"),
        (("wrong.yaml", "worse.yaml", "overlay"), "2 of 3 scenarios have errors\n"),
        (("overlay",), ""),
    ],
)
def test_how_many_scenarios_have_errors(files, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("wrong.yaml", "worse.yaml"):
        Path(name).write_text("name: x\n", encoding="utf-8")
    overlay = find("overlay").read_text(encoding="utf-8")
    Path("wrong-vni.yaml").write_text(overlay.replace("vni:", "vin:"), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["validate", *files])
    assert ended.value.code == (2 if told else 0)
    assert capsys.readouterr().err == told


def test_a_plan_with_unknown_steps_has_the_reason_and_exits_with_4(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path))

    def refused(_prepared):
        raise PreflightError("choosing a bundle", "there is no bundle", "make one")

    monkeypatch.setattr(api, "preview", refused)
    with pytest.raises(SystemExit) as ended:
        main(["plan", "overlay", "--provider", "netns"])
    output = capsys.readouterr()
    assert ended.value.code == 4
    assert output.out.endswith(
        "\nsteps: unknown, because 'lab up' would be refused: there is no bundle\n"
    )
    assert "try: make one" in output.err


@pytest.mark.parametrize(
    ("option", "notes"),
    [
        ("compute.os=windows", []),
        (
            "compute.os=windows,compute.memory=4GiB",
            ["note: 'memory' of nodes: for real machines only, ignored by 'netns'"],
        ),
    ],
)
def test_a_note_names_only_what_a_spec_string_says(option, notes, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        main(["plan", f"k8s-libvirt-1-1-1,{option}", "--provider", "netns"])
    assert not ended.value.code
    told = capsys.readouterr()
    lines = (told.out + told.err).splitlines()
    assert [line for line in lines if line.startswith("note: ")] == notes
