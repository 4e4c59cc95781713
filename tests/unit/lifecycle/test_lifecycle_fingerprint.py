from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import small_lab

from lab.lifecycle.fingerprint import fingerprint


def test_equal_plans_have_equal_fingerprints_and_others_another() -> None:
    assert fingerprint(small_lab.plan()) == fingerprint(small_lab.plan())
    assert fingerprint(small_lab.plan()) != fingerprint(small_lab.plan(summary="Other"))
    assert fingerprint(replace(small_lab.plan(), parameters={"vni": 4097})) != fingerprint(
        small_lab.plan()
    )


def test_the_order_of_a_mapping_does_not_matter_and_that_of_a_tuple_does() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint(("a", "b")) != fingerprint(("b", "a"))


def test_every_process_finds_the_same_fingerprint() -> None:
    here = Path(__file__)
    script = (
        "import small_lab; from lab.lifecycle.fingerprint import fingerprint; "
        "print(fingerprint(small_lab.plan()))"
    )
    paths = f"{here.parent}:{here.parents[3]}"
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(found) == 1
