"""Windows nodes of a lab: what cannot be probed, what is pinned, how the document looks."""

import os
import stat
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from shipped import intent_of

from lab._errors import BrokenError, DeadlineError, PreflightError, UsageError
from lab.lifecycle.compilation import compile_scenario
from lab.machines import keyring
from lab.machines.images import recipes
from lab.machines.images.golden import GoldenImage
from lab.machines.keyring import Pins
from lab.machines.libvirt import domains, foreign, images, installer, placement
from lab.machines.libvirt.guests import LibvirtGuests
from lab.machines.libvirt.host import Host, offered_enlightenments
from lab.machines.libvirt.images import QemuUser
from lab.machines.libvirt.machines import MachineRecipe
from lab.plan.planner import make_plan
from lab.providers.provider import LabHandle, Probe, ProbeSettings
from lab.scenario.loader import load
from lab.topology import registry
from lab.windows import libvirt as windows

INTENT = compile_scenario("overlay").intent
WINDOWS = next(machine for machine in INTENT.machines if machine.os == "windows")
LINUX = next(machine for machine in INTENT.machines if machine.os == "linux" and machine.pods)


def probe(source: str, address: str, port: int = 8080) -> Probe:
    return Probe(1, source, "tcp", "small", address, port, 1400)


def plain(address: str) -> str:
    return address.partition("/")[0]


def services(os: str) -> Iterator[tuple[str, int, int | None]]:
    pods = {pod.name for machine in INTENT.machines if machine.os == os for pod in machine.pods}
    assert LINUX.translation is not None
    for service in LINUX.translation.services:
        if {backend.pod for backend in service.backends} <= pods:
            port = service.ports[0]
            yield service.address, port.port, port.node_port


OWN = plain(LINUX.interfaces[0].addresses[0])
THEIRS = plain(WINDOWS.interfaces[0].addresses[0])
VIP, PORT, NODE_PORT = next(service for service in services("windows") if service[2])
LINUX_VIP, LINUX_PORT, _ = next(services("linux"))


@pytest.mark.parametrize(
    ("source", "address", "port", "barred"),
    [
        (WINDOWS.name, OWN, 1, True),
        (WINDOWS.pods[0].name, "192.0.2.1", 1, True),
        (LINUX.name, THEIRS, 1, True),
        (LINUX.pods[0].name, plain(WINDOWS.pods[0].address), 1, True),
        (LINUX.pods[0].name, VIP, PORT, True),
        ("client", OWN, NODE_PORT, True),
        ("client", THEIRS, NODE_PORT, True),
        (LINUX.pods[0].name, LINUX_VIP, LINUX_PORT, False),
        (LINUX.name, OWN, 1, False),
        (LINUX.pods[0].name, plain(LINUX.pods[0].address), 1, False),
    ],
)
def test_what_starts_or_ends_on_windows_is_an_error_with_its_reason(source, address, port, barred):
    outcomes = foreign.refuse_probes(INTENT, [probe(source, address, port)])
    assert bool(outcomes) == barred
    for outcome in outcomes.values():
        assert outcome.status == "error"
        assert WINDOWS.name.rstrip("0123456789") in outcome.detail
        assert "Kubernetes" in outcome.detail
        assert "--only linux" in outcome.detail


def test_probes_that_cannot_be_are_never_sent_and_every_probe_has_an_outcome(tmp_path):
    lab = LabHandle("overlay", tmp_path, "t" * 16)
    everyone = {machine.name: "local" for machine in INTENT.machines}
    only = tuple(machine.name for machine in INTENT.machines if machine.os == "windows")
    decided = placement.LibvirtLayout(everyone, {"local": True}, {}, {}, only)
    probes = [replace(probe(WINDOWS.name, OWN), key=key) for key in (7, 9)]
    told: list[int] = []
    with LibvirtGuests(lab, decided, {}) as guests:
        guests._controls = {}  # no machine is there to connect to
        outcomes = guests.probe(INTENT, probes, ProbeSettings(1.0, 4), told.append)
    assert {key: outcome.status for key, outcome in outcomes.items()} == {7: "error", 9: "error"}
    assert told[-1] == 2


def test_a_pod_on_windows_is_refused_with_its_reason():
    with pytest.raises(UsageError, match="Kubernetes"):
        foreign.refuse_pod(INTENT, WINDOWS.pods[0].name)
    foreign.refuse_pod(INTENT, LINUX.pods[0].name)


def test_a_layout_knows_its_windows_machines_and_one_of_older_versions_has_none(tmp_path):
    lab = LabHandle("overlay", tmp_path, "t" * 16)
    placement.save_layout(lab, placement.LibvirtLayout({"win1": "local"}, {}, {}, {}, ("win1",)))
    layout = placement.load_layout(lab)
    assert layout is not None
    assert layout.windows == ("win1",)
    text = (tmp_path / placement.LAYOUT_FILE).read_text().replace('"windows"', '"other"')
    (tmp_path / placement.LAYOUT_FILE).write_text(text)
    layout = placement.load_layout(lab)
    assert layout is not None
    assert layout.windows == ()
    (tmp_path / placement.LAYOUT_FILE).write_text('{"homes": ' * 5000)
    assert placement.load_layout(lab) is None


@pytest.fixture
def lab(tmp_path):
    handle = LabHandle("overlay", tmp_path, "3fa9c2d1e0b7a655")
    keyring.ensure(handle, [])
    keyring.ensure_passwords(handle, ["win1"])
    return handle


# SECURITY.md: Secrets are each lab's own.
def test_passwords_and_pins_are_in_files_of_their_own_that_nobody_else_reads(lab):
    first = keyring.password(lab, "win1")
    keyring.ensure_passwords(lab, ["win1"])
    assert keyring.password(lab, "win1") == first
    assert keyring.pins(lab, "win1") is None
    keyring.pin(lab, "win1", Pins("ssh-ed25519 AAAA", "ab" * 32))
    assert keyring.pins(lab, "win1") == Pins("ssh-ed25519 AAAA", "ab" * 32)
    for path in (*(lab.directory / "secrets").iterdir(), *(lab.directory / "pins").iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    keyring.unpin(lab, "win1")
    keyring.unpin(lab, "win1")
    assert keyring.pins(lab, "win1") is None


def test_a_machine_is_not_contacted_before_it_printed_its_keys(lab):
    decided = placement.LibvirtLayout(
        {"win1": "local"}, {}, {}, {"win1": "Administrator"}, ("win1",)
    )
    guests = LibvirtGuests(lab, decided, {})
    guests.__dict__["_addresses"] = {"win1": "192.0.2.1"}
    with pytest.raises(BrokenError, match="host keys have not appeared"):
        guests.shell("win1")


@pytest.fixture
def clone(lab, monkeypatch):
    domain = SimpleNamespace(state="running")

    namespace = SimpleNamespace(
        connected=None, explain_errors=lambda _: nullcontext(), lab_pool=lambda _: object()
    )
    monkeypatch.setattr(windows.domains, "find", lambda *_: (domain, None))
    monkeypatch.setattr(windows.domains, "state", lambda one: one.state)
    monkeypatch.setattr(windows.storage, "find", lambda *_: None)
    monkeypatch.setattr(windows, "_LOOK_SECONDS", 0.0)
    discarded: list[str] = []
    monkeypatch.setattr(domains, "discard_volume", lambda *words: discarded.append(words[2]))
    recipe = MachineRecipe(
        lab, replace(WINDOWS, name="win1"), cast("Any", None), True, 1400, "192.0.2.10", 24
    )
    return SimpleNamespace(
        host=cast("Host", namespace),
        recipe=recipe,
        domain=domain,
        discarded=discarded,
        lab=lab,
    )


KEYS = "hybridlab: key ssh-ed25519 AAAA\r\nhybridlab: certificate " + "AB" * 32 + "\r\n"


def test_a_clone_is_pinned_by_its_printed_keys_and_its_medium_is_removed(clone):
    said = iter(["", "hybridlab: phase specialize\r\n", KEYS, f"{KEYS}hybridlab: phase ready\r\n"])
    windows.pin_keys(clone.host, clone.recipe, lambda: next(said))
    assert keyring.pins(clone.lab, "win1") == Pins("ssh-ed25519 AAAA", "ab" * 32)
    assert clone.discarded == ["win1.seed"]


def test_a_clone_that_is_pinned_is_not_listened_to_again(clone):
    keyring.pin(clone.lab, "win1", Pins("ssh-ed25519 OLD", "cd" * 32))
    windows.pin_keys(clone.host, clone.recipe, pytest.fail)
    assert keyring.pins(clone.lab, "win1") == Pins("ssh-ed25519 OLD", "cd" * 32)


@pytest.mark.parametrize(
    ("said", "state", "words"),
    [
        ("hybridlab: step cards\r\nhybridlab: failed cards: none\r\n", "running", "cards: none"),
        ("hybridlab: phase specialize\r\n", "off", "its domain has stopped"),
        ("hybridlab: phase specialize\r\n" * 3, "running", "started phase specialize 3 times"),
    ],
)
def test_a_clone_that_will_never_be_ready_is_given_up_at_once(said, state, words, clone):
    clone.domain.state = state
    with pytest.raises(BrokenError, match=words) as broken:
        windows.pin_keys(clone.host, clone.recipe, lambda: said)
    assert "| hybridlab:" in broken.value.happened
    assert keyring.pins(clone.lab, "win1") is None
    assert clone.discarded == []


def test_a_clone_that_takes_too_long_is_named_by_its_phase(clone, monkeypatch):
    monkeypatch.setattr(windows, "SPEAK_SECONDS", {True: 0.0, False: 0.0})
    text = "hybridlab: phase first-logon\r\nhybridlab: step winrm\r\n"
    with pytest.raises(DeadlineError, match=r"first logon is running clone\.ps1, step 'winrm'"):
        windows.pin_keys(clone.host, clone.recipe, lambda: text)


def test_the_cards_of_a_clone_are_those_of_the_intent(lab):
    machine = replace(WINDOWS, name="win1")
    recipe = MachineRecipe(lab, machine, cast("Any", None), True, 1400, "192.0.2.10", 24)
    image = recipes.load("windows-server-2022").windows
    assert image is not None
    told = windows.clone_settings(recipe, image)
    assert [card.name for card in told.cards] == [
        "mgmt0",
        *(card.name for card in WINDOWS.interfaces),
    ]
    assert told.cards[0].address == "192.0.2.10/24"
    assert told.cards[0].gateway is None
    assert told.cards[1].address == WINDOWS.interfaces[0].addresses[0]
    via = next(route.via for route in WINDOWS.routes if route.destination == "default")
    assert told.cards[1].gateway == via


def test_a_clone_asks_the_name_server_of_its_nodes():
    (machine, *_) = (
        machine for machine in intent_of("kubeinit").machines if machine.os == "windows"
    )
    assert machine.resolver is not None
    card = windows.clone_card(machine, machine.interfaces[0])
    assert card.dns == (machine.resolver.server,)
    assert windows.clone_card(replace(machine, resolver=None), machine.interfaces[0]).dns == ()


def test_further_cards_make_the_same_digest_as_in_earlier_versions(tmp_path, monkeypatch):
    """Another digest would make every machine that has such a card again."""
    monkeypatch.setattr(keyring, "client_public", lambda _: "ssh-ed25519 AAAA")
    everything = Path(__file__).parents[2] / "cases/scenario/valid/everything.yaml"
    intent = registry.intent(make_plan(load(everything)))
    (machine,) = (machine for machine in intent.machines if machine.hardware.nics)
    image = cast("Any", SimpleNamespace(digest="sha256:1", first_boot="windows"))
    lab = LabHandle("a", tmp_path, "11")
    recipe = MachineRecipe(lab, machine, image, True, 1400, "192.0.2.10", 24)
    assert recipe.digest().startswith("429a380774795acb")


def test_a_clone_gets_language_time_zone_and_time_server_of_its_images_recipe(lab, monkeypatch):
    shipped = recipes.load("windows-server-2022")
    assert shipped.windows is not None
    told = {
        "locale": "de-DE",
        "keyboard": "0407:00000407",
        "time_zone": "W. Europe Standard Time",
        "time_server": "192.0.2.123",
    }
    german = shipped.replace(windows=shipped.windows.model_copy(update=told))
    monkeypatch.setattr(windows.recipes, "load", lambda _: german)
    kept: list[bytes] = []
    monkeypatch.setattr(windows.storage, "write", lambda _, name, made: kept.append(made) or name)
    monkeypatch.setattr(windows.storage, "directory_of", lambda _: "/pool")
    image = GoldenImage(
        name=shipped.name,
        digest="d" * 64,
        os="windows",
        disk=lab.directory,
        virtual_gib=1,
        firmware="uefi",
        kernel=None,
        initrd=None,
        arguments="",
        first_boot="windows",
        user="Administrator",
        storage="sata",
    )
    recipe = MachineRecipe(lab, replace(WINDOWS, name="win1"), image, False, 1400, "192.0.2.10", 24)
    keyring.pin(lab, "win1", Pins("ssh-ed25519 OLD", "cd" * 32))
    made = windows.clone_machine(cast("Host", None), recipe, cast("Any", None), "/disk")
    assert keyring.pins(lab, "win1") is None
    assert [disc.path for disc in made.discs] == ["win1.seed"]
    assert (made.storage, made.firmware) == ("sata", "uefi")
    (medium,) = kept
    assert b"<TimeZone>W. Europe Standard Time</TimeZone>" in medium
    assert b"<UserLocale>de-DE</UserLocale>" in medium
    assert b'"time_zone": "W. Europe Standard Time"' in medium
    assert b'"time_server": "192.0.2.123"' in medium
    assert b">UTC<" not in medium


def test_only_what_the_hypervisor_offers_is_asked_for():
    text = (
        "<domainCapabilities><features><hyperv supported='yes'><enum name='features'>"
        "<value>spinlocks</value><value>evmcs</value><value>relaxed</value></enum></hyperv>"
        "</features></domainCapabilities>"
    )
    assert offered_enlightenments(text) == ("relaxed", "spinlocks")
    assert offered_enlightenments(text.replace("'yes'", "'no'")) == ()


def test_a_site_is_known_by_its_mark_and_a_lab_s_mark_is_none():
    mark = installer.SiteMark("windows-server-2022", Path("/cache/a <b>"), "00ff")
    assert (
        installer.read_site(f"<domain><metadata>{installer.site_xml(mark)}</metadata></domain>")
        == mark
    )
    assert installer.read_site("<domain><metadata/></domain>") is None


@pytest.mark.parametrize(
    ("mode", "who", "may"),
    [
        (0o644, QemuUser(7, frozenset({7})), True),
        (0o640, QemuUser(7, frozenset({7})), False),
        (0o640, QemuUser(7, frozenset({7, 200})), True),
        (0o604, QemuUser(7, frozenset({7, 200})), False),
        (0o400, QemuUser(100, frozenset()), True),
        (0o044, QemuUser(100, frozenset({200})), False),
        (0o000, QemuUser(0, frozenset()), True),
    ],
)
def test_who_may_read_follows_from_owner_group_and_mode(mode, who, may):
    status = os.stat_result((mode, 0, 0, 1, 100, 200, 0, 0, 0, 0))
    assert images.permits(status, who, stat.S_IROTH) == may


def test_a_folder_that_qemu_may_not_enter_is_named(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "windows.iso").write_bytes(b"")
    for parent in (tmp_path, *tmp_path.parents):
        if parent == tmp_path or parent.name.startswith(("pytest-", "popen-")):
            parent.chmod(0o755)
    stranger = QemuUser(64055, frozenset({64055}))
    with pytest.raises(PreflightError, match=f"may not enter '{closed}'"):
        images.require_readable(closed / "windows.iso", stranger, "medium")
    closed.chmod(0o711)
    images.require_readable(closed / "windows.iso", stranger, "medium")
    (closed / "windows.iso").chmod(0o600)
    with pytest.raises(PreflightError, match="may not read it"):
        images.require_readable(closed / "windows.iso", stranger, "medium")


def test_media_of_recipes_stay_on_a_hypervisor_and_others_go():
    name = images.medium_name(images.VendorMedium(Path("/x"), "ab" * 32))
    assert images.is_current_medium(name, ["ab" * 32])
    assert images.is_current_medium(f"{name}.ok", ["ab" * 32])
    assert not images.is_current_medium(name, ["cd" * 32])


def test_a_missing_medium_is_reported_with_its_node_and_an_alternative():
    def check(image: str) -> None:
        raise PreflightError("looking", f"{image} is not there", "get it")

    with pytest.raises(PreflightError, match=f"node '{WINDOWS.name}' needs image") as refused:
        foreign.require_images(INTENT, check)
    assert "--only linux" in refused.value.hint
    foreign.require_images(INTENT, lambda _: None)
