"""``lab image build`` of Windows with a machine that is a table: phases, steps, kills, failures.

Shells answer as the WinRM double does. Stand-ins, not Windows.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import media_maker
import ntfs_maker
import pytest
from double.script import Answer, Asked
from fake_site import FakeMachine, FakeSite
from paramiko import Ed25519Key
from windows_guests import Guest

from lab._errors import BrokenError, DeadlineError, PreflightError
from lab.inventory.inventory import ImageSource, Inventory, Secret
from lab.machines.images import recipes
from lab.machines.images.golden import GoldenImage
from lab.machines.images.image_store import ImageStore
from lab.machines.images.installation import Address
from lab.machines.images.job import UNFINISHED
from lab.machines.images.recipe import Deadlines
from lab.windows.images import build, monitor
from lab.windows.images.image_steps import golden_steps

pytestmark = pytest.mark.skipif(
    bool(ntfs_maker.missing()), reason=f"not installed: {ntfs_maker.missing()}"
)
NAME = "windows-server-2022"
STEP = re.compile(r"hybridlab\\([a-z-]+)\.ps1")
UP = "2026-11-21T10:00:00.0000000Z 100\r\n"
DONE = {"changed": True, "reboot": False, "facts": {}}
GOLDEN_ORDER = tuple(step.name for step in golden_steps("2022", ""))


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """No wait between two looks: the table answers at once."""
    monkeypatch.setattr(monitor, "LOOK_SECONDS", 0.0)


@pytest.fixture(scope="module")
def media(tmp_path_factory):
    folder = tmp_path_factory.mktemp("media")
    iso = media_maker.make(folder, year="2022", channel="evaluation")
    virtio = media_maker.virtio_win(folder / "virtio-win.iso")
    openssh = media_maker.openssh(folder / "OpenSSH-Win64.zip")
    return {NAME: iso, "virtio-win": virtio, "openssh-windows": openssh}


def steps_of(guest: Guest) -> list[str]:
    return [match[1] for request in guest.script.asked if (match := STEP.search(request.path))]


def answering(guest: Guest, fails: str = "") -> None:
    """Have the double answer every step of a golden image; the one that fails says so."""

    def step(request: Asked) -> Answer | None:
        match = STEP.search(request.path)
        if match is None:
            return None
        said: dict[str, Any] = {"step": match[1]}
        said |= {"error": "no room for the feature"} if match[1] == fails else DONE
        return Answer(int("error" in said), json.dumps(said).encode())

    guest.script.on("LastBootUpTime", Answer(0, UP.encode()))
    guest.script.on(r"-[Ff]ile", step)


class Bench:
    """An image store whose installations are in a :class:`FakeSite`."""

    def __init__(self, folder: Path, media: dict[str, Path], guest: Guest) -> None:
        self.guest = guest
        at = Address("127.0.0.1", None, guest.ssh.port, guest.winrm.port)
        self.site = FakeSite(at, self.usual)
        self.cache = folder / "cache"
        self.told: list[str] = []
        self.image_store = self.new_store(media)

    def new_store(self, media: dict[str, Path], **secret: Any) -> ImageStore:
        """The image store of an inventory with these media, and perhaps a product key."""
        images = {name: ImageSource(url=str(path)) for name, path in media.items()}
        secrets = {"product-key": Secret(**secret)} if secret else {}
        return ImageStore(self.cache, Inventory(images=images, secrets=secrets), self.site)

    def usual(self, machine: FakeMachine) -> None:
        """All goes well; it goes down when sysprep was asked for."""
        if not machine.console:
            machine.say("hybridlab: phase specialize")
            machine.say("hybridlab: phase first-logon", "hybridlab: step winrm")
            machine.say(f"hybridlab: key {self.guest.host_key}")
            machine.say(f"hybridlab: certificate {self.guest.certificate}")
            self.admit()
            machine.say("hybridlab: phase ready")
        if "sysprep" in steps_of(self.guest) and machine.runs:
            machine.say("hybridlab: phase sysprep")
            machine.runs = False

    def admit(self) -> None:
        """The guest takes the password and the key of this build, as the answer medium says."""
        kept = build.load_record(self.scratch)
        assert kept is not None
        self.guest.service.password = kept.password
        key = Ed25519Key.from_private_key_file(str(self.scratch / build.KEY))
        self.guest.authorized.write_text(f"{key.get_name()} {key.get_base64()} build\n")

    @property
    def scratch(self) -> Path:
        (path,) = (self.cache / "images").glob(".*.partial")
        return path

    def build(self) -> GoldenImage:
        return self.image_store.get(NAME, self.told.append)

    def interrupted(self) -> None:
        """The command is killed while Windows installs itself."""

        def killed(machine: FakeMachine) -> None:
            machine.say("hybridlab: phase specialize")
            raise KeyboardInterrupt

        self.site.story = killed
        with pytest.raises(KeyboardInterrupt):
            self.build()
        self.site.story = self.usual

    def broken(self, story: Callable[[FakeMachine], None] | None, words: str) -> str:
        """What a build whose machine has this story ends with; it leaves nothing."""
        self.site.story = story or self.site.story
        with pytest.raises((BrokenError, DeadlineError), match=words) as caught:
            self.build()
        assert all(machine.removed or machine.refuses for machine in self.site.begun)
        return str(caught.value)

    def left(self) -> list[str]:
        return sorted(path.name for path in (self.cache / "images").iterdir())


@pytest.fixture
def bench(tmp_path, media, guest):
    answering(guest)
    made = Bench(tmp_path, media, guest)
    yield made
    for path in (made.cache / "images").glob(".*.partial/*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or path.is_dir()


def test_an_installation_becomes_a_golden_image_and_nothing_secret_is_left(bench, media):
    image = bench.build()

    assert (image.os, image.first_boot) == ("windows", "windows")
    assert sorted(path.name for path in image.disk.parent.iterdir()) == ["disk.qcow2", "image.json"]
    (machine,) = bench.site.begun
    assert machine.removed
    assert not machine.has_answers
    assert tuple(steps_of(bench.guest)) == GOLDEN_ORDER
    told = "\n".join(bench.told)
    for words in ("SERVERSTANDARDCORE", "steps are run", "step 'sysprep'", "copying the finished"):
        assert words in told
    assert bench.image_store.get(NAME, pytest.fail) == image
    asked = machine.asked
    assert asked.setup.path == media[NAME]
    assert (asked.recipe.firmware, asked.parts.storage) == ("uefi", "virtio")
    assert asked.overlay is not None, "firmware of UEFI waits for a key press without it"
    assert asked.recipe.disk_gib == 64
    assert b"HYBRIDLAB" in asked.answers
    assert b"stand-in of viostor for 2k22" in asked.answers


def test_a_command_that_is_killed_while_windows_installs_itself_is_gone_on_with(bench):
    bench.interrupted()
    assert not bench.site.begun[0].removed
    assert "is still running" in bench.told[-1]
    mode = stat.S_IMODE((bench.scratch / UNFINISHED).stat().st_mode)
    assert mode == stat.S_IMODE((bench.scratch / build.KEY).stat().st_mode) == 0o600

    bench.site.begun[0].console.clear()
    bench.build()

    assert len(bench.site.begun) == 1
    assert any("continuing the installation" in line for line in bench.told)


def test_steps_that_are_done_are_not_done_again(bench):
    rules = bench.guest.script.rules
    before = list(rules)

    def killed(_: Asked) -> Answer:
        os.kill(os.getpid(), 2)
        return Answer(1)

    rules.insert(1, (re.compile(r"features\.ps1"), killed))
    with pytest.raises(KeyboardInterrupt):
        bench.build()
    kept = build.load_record(bench.scratch)
    assert (kept.stage, kept.steps) == ("steps", ("patch-level", "wsman"))
    rules[:] = before
    bench.guest.script.asked.clear()

    bench.build()

    assert tuple(steps_of(bench.guest)) == GOLDEN_ORDER[2:]


def test_a_build_whose_machine_has_gone_is_done_anew(bench):
    bench.interrupted()
    bench.site.begun[0].removed = True
    bench.build()
    assert len(bench.site.begun) == 2


def test_a_step_that_fails_in_the_guest_ends_it_at_once_with_all_that_was_seen(bench):
    def failing(machine: FakeMachine) -> None:
        machine.say("hybridlab: phase first-logon", "hybridlab: step openssh")
        machine.say("hybridlab: failed openssh: the archive is damaged")

    said = bench.broken(failing, "step openssh: the archive is damaged")
    picture = bench.cache / "logs" / f"{NAME}-first-logon.png"
    for words in (
        "its disk has no logs of Setup",
        "'Known traps'",
        "at 'first-logon'",
        f"its screen is in '{picture}'",
        "| hybridlab: failed openssh",
    ):
        assert words in said
    assert picture.exists()
    assert bench.left() == []


def test_a_sealed_disk_that_keeps_an_answer_file_is_no_golden_image(bench):
    """W4: whatever was done before, the disk itself is looked into."""

    def kept(machine: FakeMachine) -> None:
        bench.usual(machine)
        machine.on_disk["Windows/Panther/Unattend/Unattend.xml"] = b"<unattend/>"

    bench.broken(kept, r"has Windows\\Panther\\Unattend\\Unattend\.xml")
    assert bench.left() == []


def test_a_machine_without_a_shell_leaves_the_logs_of_its_disk_with_their_meaning(bench):
    def failing(machine: FakeMachine) -> None:
        machine.on_disk["Windows/Panther/UnattendGC/setupact.log"] = (
            b"2026-04-22 23:03:32, Warning   [Shell Unattend] Failed to decode password "
            b"(0x8007000d) \r\n"
        )
        machine.say("hybridlab: phase specialize", "hybridlab: failed x: y")

    said = bench.broken(failing, "step x: y")
    folder = bench.cache / "logs" / f"{NAME}-guest"
    assert "0x8007000d" in (folder / "windows-panther-unattendgc-setupact.log").read_text()
    for words in ("cannot decode a password", "AdministratorPassword", f"logs are in '{folder}'"):
        assert words in said
    assert bench.left() == []


@pytest.mark.parametrize("phase", ["specialize", "first-logon"])
def test_a_phase_that_is_stuck_is_named(phase, bench, monkeypatch):
    recipe = recipes.load(NAME)
    short = Deadlines.model_construct(**dict.fromkeys(Deadlines.model_fields, 0))
    windows = recipe.windows.model_copy(update={"deadlines": short})
    stuck = recipe.replace(windows=windows)
    monkeypatch.setattr(recipes, "load", lambda *_: stuck)
    said = bench.broken(
        lambda one: None if one.console else one.say(f"hybridlab: phase {phase}"),
        f"phase '{phase}' has not ended",
    )
    assert "WinRM" not in said.partition("try:")[0]


def test_a_step_over_the_shell_that_fails_is_named_and_the_guest_s_logs_are_fetched(bench):
    bench.guest.script.rules.clear()
    bench.guest.script.on(r"cmd\.exe /d /c exit 0$")
    answering(bench.guest, fails="features")
    bench.guest.script.on("Get-|systeminfo|ipconfig", Answer(0, b"what it shows"))
    bench.broken(None, "features(.|\n)*no room for the feature")
    logs = bench.cache / "logs" / f"{NAME}-guest"
    assert (logs / "panther-setupact.txt").read_bytes() == b"what it shows"


def test_a_certificate_that_is_not_the_one_from_the_console_is_fatal(bench):
    def lying(machine: FakeMachine) -> None:
        if not machine.console:
            machine.say(f"hybridlab: key {bench.guest.host_key}")
            machine.say(f"hybridlab: certificate {'0' * 64}", "hybridlab: phase ready")
            bench.admit()

    bench.broken(lying, "certificate")
    assert steps_of(bench.guest) == []


def test_a_machine_that_cannot_be_removed_is_removed_by_the_next_command(bench):
    def failing(machine: FakeMachine) -> None:
        machine.refuses = "the hypervisor is gone"
        machine.say("hybridlab: failed disk: none there")

    bench.broken(failing, "none there")
    assert any("could not be removed: the hypervisor is gone" in line for line in bench.told)
    bench.site.story = bench.usual

    bench.build()

    assert [one.removed for one in bench.site.begun] == [True, True]


def test_what_cannot_be_begun_leaves_nothing(bench):
    bench.site.refuses = PreflightError("installing", "there is no room")
    with pytest.raises(PreflightError, match="no room"):
        bench.build()
    assert bench.left() == []


def test_a_wrong_medium_is_refused_before_any_machine_is_made(bench, tmp_path):
    other = media_maker.make(tmp_path, year="2019", channel="evaluation")
    with pytest.raises(PreflightError, match="medium of Windows Server 2019"):
        bench.new_store({NAME: other, "virtio-win": other}).get(NAME, print)
    assert not bench.site.begun
    assert not (bench.cache / "images").exists()


KEY = "ABCDE-FGHJK-LMNPQ-RSTUV-WXYZ2"


@pytest.fixture(scope="module")
def volume_medium(media, tmp_path_factory):
    folder = tmp_path_factory.mktemp("volume")
    return {**media, NAME: media_maker.make(folder, year="2022", channel="volume")}


@pytest.mark.parametrize("by", ["file", "environment"])
def test_the_inventorys_product_key_goes_to_setup_and_nowhere_else(
    by, bench, volume_medium, tmp_path, monkeypatch
):
    (tmp_path / "key").write_text(f"{KEY.lower()}\n")
    monkeypatch.setenv("THE_KEY", KEY)
    place = {"file": tmp_path / "key"} if by == "file" else {"environment": "THE_KEY"}
    image_store = bench.new_store(volume_medium, **place)

    image = image_store.get(NAME, bench.told.append)

    assert f"<Key>{KEY}</Key>".encode() in bench.site.begun[0].asked.answers
    assert any("[secrets.product-key]" in one for one in bench.told)
    assert KEY not in "\n".join(bench.told)
    assert not any(KEY.encode() in path.read_bytes() for path in image.disk.parent.iterdir())
    (tmp_path / "key").unlink()
    monkeypatch.delenv("THE_KEY")
    assert image_store.get(NAME, pytest.fail) == image, "a key is no part of what an image is"


def test_evaluation_media_take_no_key_and_the_inventorys_is_not_asked_for(bench, media):
    bench.new_store(media, environment="NOT_SET").get(NAME, bench.told.append)
    assert not re.search(rb"<Key>\w{5}-", bench.site.begun[0].asked.answers)


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "THE_KEY of .* is not set"), (" ", "is empty"), ("hunter2", "holds none")],
)
def test_a_product_key_that_is_none_is_refused_before_any_machine_is_made(
    value, words, bench, volume_medium, monkeypatch
):
    if value is not None:
        monkeypatch.setenv("THE_KEY", value)
    with pytest.raises(PreflightError, match=words) as refused:
        bench.new_store(volume_medium, environment="THE_KEY").get(NAME, bench.told.append)
    assert "hunter2" not in str(refused.value)
    assert not bench.site.begun
    assert bench.left() == []


def test_a_firmware_that_is_asked_for_is_that_of_machine_answers_and_image(bench):
    bench.image_store.choose(NAME, "uefi")
    image = bench.build()
    asked = bench.site.begun[0].asked
    assert (asked.recipe.firmware, image.firmware) == ("uefi", "uefi")
    assert asked.overlay is not None
    assert b"<Type>EFI</Type>" in asked.answers
    assert bench.image_store.get(NAME, pytest.fail) == image


def test_an_interrupted_installation_of_another_firmware_is_reported_and_left_alone(bench):
    bench.interrupted()
    bench.image_store.choose(NAME, "bios")
    bench.told.clear()
    (kept,) = bench.left()
    bench.site.story = lambda _: (_ for _ in ()).throw(BrokenError("looking", "it is gone"))
    with pytest.raises(BrokenError, match="it is gone"):
        bench.build()
    (note,) = [one for one in bench.told if "interrupted installation" in one]
    assert "'lab image gc --yes'" in note
    assert bench.left() == [kept]
    assert [one.removed for one in bench.site.begun] == [False, True]
