"""Which nodes are not what they look like is in the first line of commands about such a lab."""

from contextlib import suppress
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from lab._errors import LabError
from lab.cli.main import command
from lab.lifecycle import api
from lab.providers.fake.provider import FakeProvider
from lab.topology.intent import Intent

DISCLAIMER = "Windows nodes are programs in memory"
COMMANDS = (
    "explain overlay worker1-p1 win1-p1",
    "capture overlay worker1-p1 win1-p1",
    "logs overlay",
    "fault overlay route-missing",
    "fault --list overlay",
    "heal overlay",
)


@dataclass
class StandIns(FakeProvider):
    """A provider whose Windows nodes are no Windows."""

    text: str = DISCLAIMER

    def disclaimer(self, intent: Intent) -> str:
        windows = any(machine.os == "windows" for machine in intent.machines)
        return self.text if windows else ""


@pytest.fixture
def stand_ins(desk, monkeypatch, tmp_path):
    provider = StandIns(now=lambda: desk.now)
    desk.provider = provider
    desk.providers = {"fake": provider}
    desk.up()
    monkeypatch.setattr(api, "open_any", desk.opened)
    monkeypatch.chdir(tmp_path)
    return provider


def first_line(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The first line that the command prints, whether or not it succeeds on a lab in memory."""
    with suppress(LabError):
        command.main(words.split(), standalone_mode=False)
    written = capsys.readouterr()
    return (written.err or written.out).partition("\n")[0]


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("words", COMMANDS)
def test_the_first_line_of_a_command_says_what_nodes_are(words, capsys):
    assert first_line(words, capsys) == DISCLAIMER


@pytest.mark.parametrize("words", COMMANDS)
def test_of_other_labs_it_says_nothing(words, stand_ins, capsys):
    stand_ins.text = ""
    assert DISCLAIMER not in first_line(words, capsys)


def test_status_says_it_beside_the_state(desk, stand_ins, monkeypatch):
    monkeypatch.setattr(api, "lab_status", lambda _: desk.status())
    shown = CliRunner().invoke(command, ["status", "overlay"]).stdout.splitlines()
    assert shown[0] == f"lab 'overlay' is up; {DISCLAIMER}"
    stand_ins.text = ""
    shown = CliRunner().invoke(command, ["status", "overlay"]).stdout.splitlines()
    assert shown[0] == "lab 'overlay' is up"
