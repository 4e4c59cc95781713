"""The product's answer files and commands, as the strict stand-in of Setup reads them."""

from __future__ import annotations

from pathlib import Path

import answers
import pytest
from stand_in.guest import answer, order
from stand_in.orders import GOLDEN, golden

from lab.imaging.windows import answer as product
from lab.imaging.windows.steps import golden_steps

TEMPLATES = Path(__file__).parents[2] / "images" / "windows"


@pytest.mark.parametrize("document", answers.documents().values(), ids=answers.documents())
def test_every_answer_file_has_only_what_the_stand_in_knows(document):
    assert answer.read(document).password == answers.PASSWORD


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
