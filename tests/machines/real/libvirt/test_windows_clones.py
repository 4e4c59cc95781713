"""A Windows clone's first boot, by ``lab up`` on this machine's own libvirtd.

What boots is one sector that speaks on COM1 as a clone does: a stand-in, not Windows. Its shells
answer at once (see ``programs/bootless.py``).
"""

import os
from dataclasses import replace
from pathlib import Path

import boot_disc
import pytest

pytest.importorskip("libvirt", reason="libvirt-python is not installed")
pytest.importorskip("pycdlib", reason="pycdlib is not installed")

import ntfs_maker
from drill import KILLED, LABS, Drill, chosen

from lab.machines import keyring
from lab.machines.images.medium import opened
from lab.machines.keyring import Pins
from lab.machines.libvirt import domains
from lab.providers.provider import LabHandle
from lab.state.store import Store

pytestmark = pytest.mark.machines
SPECIALIZES = "hybridlab: phase specialize"


def says(certificate: str) -> str:
    """What a clone says; no other disk says the same."""
    return boot_disc.lines(
        os.urandom(8).hex(),
        SPECIALIZES,
        "hybridlab: key ssh-ed25519 AAAAC3",
        f"hybridlab: certificate {certificate * 64}",
        "hybridlab: phase ready",
    )


@pytest.fixture
def clone(lab):
    """A scenario with one clone, which says its keys."""
    text = (Path(__file__).parents[3] / "windows/stand_in/two.yaml").read_text()
    scenario = lab.folder / "clone.yaml"
    scenario.write_text(text.replace("count: 2", "count: 1").replace("1GiB", "256MiB"))
    boot_disc.disk(lab.image, says("c"))
    return scenario


def handle(lab: Drill) -> LabHandle:
    with Store(lab.state) as store:
        row = store.lab(lab.name)
    assert row is not None
    return LabHandle(lab.name, lab.state / "labs" / lab.name, row.token)


def test_a_clone_prints_its_keys_is_pinned_and_loses_its_medium(lab, connected, clone):
    lab.run(*lab.up_words(clone))
    its = handle(lab)
    assert keyring.pins(its, "win") == Pins("ssh-ed25519 AAAAC3", "c" * 64)
    found = domains.find(connected, its, "win")
    assert found is not None
    domain = found[0]
    assert ".seed" not in domain.XMLDesc()
    assert not (LABS / its.token / "win.seed").exists()
    lab.run(*lab.up_words(clone))
    assert domain.isActive()

    lab.forget_image(connected)
    boot_disc.disk(lab.image, says("d"))  # made anew, it has to say its keys again
    lab.run(*lab.up_words(clone))
    assert keyring.pins(its, "win") == Pins("ssh-ed25519 AAAAC3", "d" * 64)
    lab.run("down", lab.name)


@pytest.mark.skipif(bool(ntfs_maker.missing()), reason=f"not installed: {ntfs_maker.missing()}")
def test_a_clone_that_never_prints_its_keys_leaves_screen_disk_and_setup_logs(lab, clone):
    log = b"Info  SETACTIVE: wizard page for page Localization\r\n"
    files = {"Windows/System32/x.dll": b"MZ", "Windows/Panther/UnattendGC/setupact.log": log}
    boot = boot_disc.program(boot_disc.lines(os.urandom(8).hex(), SPECIALIZES))
    ntfs_maker.disk(lab.image, files, boot=boot.rstrip(b"\0") + b"\0")
    short = replace(lab, extra={"BOOTLESS_SECONDS": "15"})

    stderr = short.run(*short.up_words(clone), code=3).stderr

    its = handle(lab)
    folder = its.directory / "win-first-start"
    assert (folder / "screen.png").read_bytes().startswith(b"\x89PNG")
    for words in ("phase specialize", "MiB", "page Localization and waits", str(folder)):
        assert words in stderr
    assert {path.name for path in folder.iterdir()} == {
        "screen.png",
        "windows-panther-unattendgc-setupact.log",
    }
    keyring_file = lab.folder / "seed.iso"
    keyring_file.write_bytes((LABS / its.token / "win.seed").read_bytes())
    with opened(keyring_file, "reading", "") as seed:
        assert seed.label == "HYBRIDLAB"
    assert keyring.password(its, "win").encode() not in keyring_file.read_bytes()
    lab.run("down", lab.name)


@pytest.mark.drill
def test_a_clone_whose_up_is_killed_comes_up_again_or_goes_with_down(lab, connected, clone):
    """At every call of its creation and first boot; then ``up`` again, or ``down`` at once."""
    most = len(lab.calls(*lab.up_words(clone)))
    lab.run("down", lab.name)
    for call in chosen(most):
        lab.forget_image(connected)
        killed = lab.killed(call, *lab.up_words(clone))
        assert killed.returncode == KILLED, f"call {call}: {killed.stderr}"
        if call % 2:
            lab.run(*lab.up_words(clone))
            assert "is up" in lab.run("status", lab.name).stdout, f"killed at call {call}"
        lab.run("down", lab.name)
        assert lab.left(connected) == set(), f"killed at call {call}"
