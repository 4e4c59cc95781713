"""Objects of a cluster's API, compared with those that the lab recorded."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from shipped import plan_of

from lab._deadline import Deadline
from lab._errors import LabError
from lab.facts.questions import MARK
from lab.machines import base
from lab.providers.provider import LabHandle
from lab.shells.shell import Completed
from lab.topology import registry


@pytest.mark.parametrize(
    ("stdout", "trouble"),
    [
        (f"\n{MARK} kubernetes\n\n{MARK}= 1\n\n{MARK} end\n", "exit code 1"),
        (f"\n{MARK} kubernetes\n{{", "cut off"),
        ("", "cut off"),
        (None, "the connection was lost"),
    ],
)
def test_an_api_server_that_does_not_answer_is_not_taken_for_one_without_changes(
    stdout: str | None, trouble: str, tmp_path: Path
) -> None:
    def run(*_: object) -> Completed:
        if stdout is None:
            raise LabError("asking", trouble)
        return Completed(0, stdout, "")

    text = json.dumps({"items": []})
    state = f"\n{MARK} kubernetes\n{text}\n{MARK}= 0\n\n{MARK} end\n"
    recorded = {"": {"made_by": "", "state": state, "asked": base._ASKED}}
    (tmp_path / "states.json").write_text(json.dumps(recorded))
    guests = SimpleNamespace(
        fleet=SimpleNamespace(run_everywhere=lambda *_: {}),
        shell=lambda _: SimpleNamespace(run=run),
    )
    provider = cast("base.MachinesProvider", SimpleNamespace(_guests=lambda _: nullcontext(guests)))
    intent = registry.intent(plan_of("overlay"))
    lab_handle = LabHandle("overlay", tmp_path, "t")
    deviations = base.MachinesProvider.deviations(provider, lab_handle, intent, [""], Deadline(1))
    assert isinstance(deviations[""], LabError)
    assert trouble in deviations[""].happened
