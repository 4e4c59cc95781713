"""How many probes machines bear that share the processors of one machine."""

from __future__ import annotations

import os
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from lab.providers.nspawn.guests import PROBES_A_PROCESSOR, ContainerGuests
from lab.providers.nspawn.layout import NspawnLayout
from lab.providers.provider import LabHandle, ProbeSettings


@pytest.mark.parametrize(
    ("cluster", "asked", "at_once"),
    [
        (True, 10_000, PROBES_A_PROCESSOR * (os.cpu_count() or 1)),
        (True, 3, 3),
        (False, 10_000, 10_000),
    ],
)
def test_a_cluster_s_probes_are_shared_among_this_machine_s_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, cluster: bool, asked: int, at_once: int
) -> None:
    monkeypatch.setattr("lab.providers.nspawn.preflight.emulated", lambda: False)
    layout = NspawnLayout(
        {}, IPv4Network("10.219.0.0/24"), ("master",), "x" if cluster else "", None
    )
    guests = ContainerGuests(LabHandle("lab", tmp_path, "token"), layout, None)
    asked_for = ProbeSettings(timeout=1.0, in_flight=asked)
    assert guests._slower(asked_for, cluster=cluster) == ProbeSettings(1.0, at_once)
