"""From Microsoft's ISO to two machines of a lab, through the product's own commands.

What boots is a stand-in of Setup, not Windows: see ``stand_in``. It obeys the answer files and
refuses what it does not know; what it was told is in its record.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libvirt", reason="libvirt-python is not installed")

import media_maker
from real_lab import story_until
from stand_in import linux, setup_iso
from stand_in.product import LAB, NAME, Product, product

from lab.windows.images.answer import CLONE_SPECIALIZE, SPECIALIZE, first_logon
from lab.windows.images.image_steps import golden_steps

pytestmark = pytest.mark.machines
TWO = Path(__file__).parent / "stand_in" / "two.yaml"
NODES = ("win1", "win2")
IMAGE = f"image '{NAME}': "
"""The beginning of each line of a build's story."""


@pytest.fixture
def media(tmp_path):
    """Options that name them."""
    try:
        system = linux.linux()
    except linux.MissingError as why:
        pytest.skip(str(why))
    folder = tmp_path / "media"
    iso = setup_iso.make(folder, system)
    drivers = media_maker.virtio_win(folder / "virtio-win.iso")
    archive = media_maker.openssh(folder / "OpenSSH-Win64.zip")
    return ("--iso", str(iso), "--virtio-win", str(drivers), "--openssh", str(archive))


def record(lab: Product, node: str) -> list[dict[str, Any]]:
    r"""``C:\stand-in\record.json``, fetched as anyone would: by sftp, with the lab's pins."""
    config = lab.folder / "ssh_config"
    config.write_text(lab.run("ssh-config", LAB).stdout)
    target = lab.folder / f"{node}.json"
    place = f"{LAB}-{node}:/C:/stand-in/record.json"
    command = ["sftp", "-q", "-F", str(config), place, str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in target.read_text().splitlines()]


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == kind]


@pytest.mark.parametrize(
    ("kind", "killed_at"),
    [("bios", "specialize: Windows starts from the disk"), ("uefi", "creating the machine")],
)
def test_the_iso_becomes_a_golden_image_and_two_machines(
    kind, killed_at, media, tmp_path, connected
):
    with product(tmp_path / "own", connected) as lab:
        lab.borrow("debian-12")

        words = ("image", "build", NAME, "--firmware", kind, *media)
        story = lab.killed_after(words, f"{IMAGE}{killed_at}")
        if kind == "bios":
            assert set() < lab.objects() <= set(lab.collected(yes=False))
        with lab.started("image", "build", NAME) as second:  # firmware and media are remembered
            story += story_until(second, f"{IMAGE}specialize")
            assert not lab.objects() & set(lab.collected(yes=True)), "what is being built"
            story += story_until(second, "its end")
            assert second.wait(60) == 0, story
        assert ("continuing the installation" in " ".join(story)) == (kind == "bios")
        _check_story(" ".join(story), unwatched="oobe" if kind == "bios" else "")
        assert lab.objects() == set()

        try:
            lab.up(TWO)
            _check_machines(lab, kind)
        finally:
            lab.run("down", LAB)

        if kind == "bios":  # one that nobody goes on with is collected
            lab.killed_after(("image", "build", NAME, "--firmware", "uefi"), f"{IMAGE}started")
            objects = lab.objects()
            assert set() < objects <= set(lab.collected(yes=True))
            assert lab.objects() == set()
            assert list(lab.images.glob(".*")) == []


def _check_story(said: str, unwatched: str) -> None:
    """Every phase was told, in its order; ``unwatched`` may have begun while no build ran."""
    at = 0
    for phase in ("copy", "specialize", "oobe", "first-logon", "ready", "sysprep", "built"):
        line = f"{phase}," if phase == "built" else f"{phase}:"
        if phase == unwatched and line not in said[at:]:
            continue
        assert line in said[at:], f"{line} is not in {said[at:]}"
        at = said.index(line, at)


def _check_machines(lab: Product, kind: str) -> None:
    lab.run("exec", LAB, "win1", "--", "cmd.exe", "/d", "/c", "exit 0")
    lab.run("exec", LAB, "win1", "--", "whoami", code=1)  # nothing is made up
    events = {node: record(lab, node) for node in NODES}
    for node, own in events.items():
        _check_installation(own, kind)
        _check_clone(own, node)
    ready = [of(own, "ready") for own in events.values()]
    assert {len(one) for one in ready} == {2}  # the installation's, and the clone's own
    assert ready[0][0] == ready[1][0]
    keys = {one[key] for found in ready for one in found for key in ("key", "certificate")}
    assert len(keys) == 6, "every machine has keys of its own"
    sids = {of(own, "name")[number]["sid"] for own in events.values() for number in (0, 1)}
    assert len(sids) == 3, "every machine has a SID of its own"


def _check_installation(own: list[dict[str, Any]], kind: str) -> None:
    (disk,) = of(own, "disk")
    assert disk["firmware"] == kind
    assert disk["name"] == "vda"
    (image,) = of(own, "image")
    assert image["name"] == "Windows Server 2022 SERVERSTANDARDCORE"
    (found,) = of(own, "drivers")
    assert {"viostor", "netkvm"} <= set(found["found"])
    assert [one["name"] for one in of(own, "step")] == [
        step.name for step in golden_steps("2022", "")
    ]
    assert len(of(own, "restart")) == 2
    assert not of(own, "step-refused")
    answer_commands = (
        *SPECIALIZE,
        *first_logon("bootstrap.ps1"),
        *CLONE_SPECIALIZE,
        *first_logon("clone.ps1"),
    )
    assert [one["line"] for one in of(own, "command")] == [
        answer_command.line for answer_command in answer_commands
    ]
    echoed = [one["line"] for one in of(own, "command") if one["run"]]
    assert all("echo hybridlab: phase " in line for line in echoed)


def _check_clone(own: list[dict[str, Any]], node: str) -> None:
    names = [one["computer_name"] for one in of(own, "name")]
    assert names == ["HYBRIDLAB", node]
    answers = [Path(one["path"]).name for one in of(own, "answer-file")]
    assert answers == ["autounattend.xml", "Unattend.xml"]
    (network,) = of(own, "network")
    cards = {card["name"]: card for card in network["cards"]}
    assert set(cards) == {"mgmt0", "eth0"}
    assert cards["eth0"]["address"].startswith("10.9.176.")
    assert cards["eth0"]["address"].endswith("/24")
