"""``lab ssh`` reaches a machine that its provider tells of."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from fake_computers import FakeComputers

from lab.cli.main import command
from lab.lifecycle import api
from lab.lifecycle.compilation import compile_scenario
from lab.providers.provider import LabHandle


@pytest.fixture(autouse=True)
def _lab(sshd, monkeypatch, tmp_path):
    provider = FakeComputers(
        keyfile=sshd.keyfile, host_key=sshd.host.public.strip(), port=sshd.port
    )
    handle, intent = LabHandle("overlay", tmp_path, "t0k3n"), compile_scenario("overlay").intent
    for step in provider.steps(handle, intent):
        step.run()
    opened = SimpleNamespace(
        name="overlay",
        provider=provider,
        handle=handle,
        intent=intent,
        banner="fake: it is",
        reached=nullcontext,
    )
    monkeypatch.setattr(api, "open_any", lambda _: opened)


def ssh(*words: str) -> Result:
    arguments = ["ssh", "overlay", *words]
    return CliRunner().invoke(command, arguments, catch_exceptions=False, standalone_mode=False)


@pytest.mark.parametrize("dashes", [(), ("--",)])
def test_a_command_runs_there_with_its_streams_and_its_code(dashes, capfd):
    done = ssh("worker1", *dashes, "sh", "-c", "echo out; echo err >&2; exit 7")
    assert done.return_value == 7
    assert capfd.readouterr() == ("out\n", "err\n")
    assert done.stderr == ""
