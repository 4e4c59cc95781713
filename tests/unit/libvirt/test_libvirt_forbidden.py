"""A user who may not use this machine's libvirt: told what to do, and left in peace otherwise."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lab._errors import PreflightError
from lab.inventory.inventory import STOCK, Hypervisor, Inventory
from lab.providers.libvirt import connection
from lab.providers.libvirt.provider import LibvirtProvider

FORBIDDEN = "Unable to get system bus connection: Could not connect: No such file or directory"
OWN = Hypervisor(name="own", uri="qemu:///system", line=3)
FAR = Hypervisor(name="far", uri="qemu+ssh://root@h.example/system", line=3)


@pytest.mark.parametrize(
    ("said", "hypervisor", "forbidden"),
    [
        (FORBIDDEN, OWN, True),
        ("Failed to connect socket to '/run/libvirt/libvirt-sock': Permission denied", OWN, True),
        ("authentication unavailable: no polkit agent available", OWN, True),
        ("Failed to connect socket: No such file or directory", OWN, False),
        ("root@h.example: Permission denied (publickey)", FAR, False),
    ],
)
def test_refusals_of_this_machines_own_libvirt_are_known(
    said: str, hypervisor: Hypervisor, forbidden: bool
) -> None:
    assert connection.is_forbidden(said, hypervisor) == forbidden


@pytest.mark.parametrize(
    ("said", "hypervisor", "hint"),
    [
        ("root@h.example: Permission denied (publickey)", FAR, "'keyfile=' in the URI"),
        ("Host key verification failed.", FAR, "ssh-keyscan"),
        ("Failed to connect socket: Permission denied", OWN, "--groups libvirt"),
        ("nobody knows", FAR, 'virsh -c "qemu+ssh://root@h.example/system" version'),
    ],
)
def test_a_refusal_has_its_own_hint(
    said: str, hypervisor: Hypervisor, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(said)

    monkeypatch.setattr(connection, "_opened", refuse)
    monkeypatch.setattr(connection, "load", lambda: SimpleNamespace(libvirtError=OSError))
    monkeypatch.setattr(connection, "hear_events", lambda: None)
    with pytest.raises(PreflightError, match=f"hypervisor '{hypervisor.name}'") as told:
        connection.connect(hypervisor)
    assert hint in told.value.hint


@pytest.mark.parametrize(
    ("inventory", "said", "notes"),
    [
        (STOCK, FORBIDDEN, 0),
        (STOCK, "Failed to connect socket: Connection refused", 1),
        (Inventory(hypervisors={"own": OWN}), FORBIDDEN, 1),
    ],
)
def test_only_who_asked_for_it_hears_of_a_libvirt_that_is_forbidden(
    inventory: Inventory,
    said: str,
    notes: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(hypervisor: Hypervisor) -> None:
        raise PreflightError(f"connecting to hypervisor '{hypervisor.name}'", said)

    monkeypatch.setattr(connection, "connect", refuse)
    monkeypatch.setattr(connection, "is_here", lambda _: True)
    monkeypatch.setattr(connection, "load", lambda: SimpleNamespace(libvirtError=OSError))
    assert LibvirtProvider(inventory).marks() == ()
    assert capsys.readouterr().err.count("note: connecting to") == notes
