"""The product's answer files and commands, as the strict stand-in of Setup reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import answers
import pytest
from stand_in.guest import answer, order
from stand_in.orders import GOLDEN, golden

from lab.imaging.windows import answer as product
from lab.imaging.windows.answer import answer_file, clone_answer_file, driver_paths
from lab.imaging.windows.settings import CloneSettings, Settings, WantedImage
from lab.imaging.windows.steps import golden_steps

TEMPLATES = Path(__file__).parents[2] / "images" / "windows"
PASSWORD = 'Pa"ss <&>\u00e9\u20ac'
SETTINGS = Settings(
    WantedImage("2022", "standard", "core"), "bios", "virtio", None, "HYBRIDLAB", PASSWORD
)


def installation(**changes: object) -> str:
    return answer_file(replace(SETTINGS, **changes)).decode()


def read(text: str) -> answer.Answer:
    return answer.read(text.encode())


def test_the_product_s_answer_file_says_what_its_settings_say():
    told = read(installation())

    first = told.preinstallation
    assert first is not None
    assert first.image == ("/IMAGE/NAME", "Windows Server 2022 SERVERSTANDARDCORE")
    assert first.target == answer.Target(disk=0, partition=2)
    assert first.key is None
    assert first.drivers == driver_paths(SETTINGS.wanted.release)
    assert told.computer_name == "HYBRIDLAB"
    assert told.password == PASSWORD
    assert told.autologon == answer.Logon("Administrator", PASSWORD)
    assert len(told.first_logon) == 4
    assert told.time_zone == "UTC"


@pytest.mark.parametrize("document", answers.documents().values(), ids=answers.documents())
def test_every_answer_file_has_only_what_the_stand_in_knows(document):
    assert answer.read(document).password == answers.PASSWORD


def test_a_clone_s_answer_file_has_no_installation():
    settings = CloneSettings("win1", PASSWORD, "ssh-ed25519 AAAA x", "192.0.2.1", (), None)
    told = answer.read(clone_answer_file(settings))
    assert told.preinstallation is None
    assert told.computer_name == "win1"
    assert told.password == PASSWORD


def test_the_golden_order_is_the_product_s():
    """What the stand-in is to be told, in order: it stops at the first that is another."""
    assert golden() == {
        "windowsPE": [],
        "specialize": [one.line for one in product.SPECIALIZE],
        "first-logon": [one.line for one in product.first_logon("bootstrap.ps1")],
        "bootstrap steps": steps("bootstrap.ps1"),
        "steps": [step.name for step in golden_steps("2022", "")],
        "clone specialize": [one.line for one in product.CLONE_SPECIALIZE],
        "clone first-logon": [one.line for one in product.first_logon("clone.ps1")],
        "clone steps": steps("clone.ps1"),
    }, f"if that is meant, write it into {GOLDEN}"


def steps(name: str) -> list[str]:
    module = (TEMPLATES / "hybridlab.psm1").read_text(encoding="utf-8")
    return order.steps((TEMPLATES / name).read_text(encoding="utf-8"), module)
