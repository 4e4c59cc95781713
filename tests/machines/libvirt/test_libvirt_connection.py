"""What libvirt is given to connect with, its refusals, and a lab's record of hypervisors."""

import errno
import json
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest

from lab._errors import PreflightError
from lab.inventory.inventory import STOCK, Hypervisor, Inventory
from lab.machines.libvirt import bring_up, connection
from lab.machines.libvirt.connection import controller_id, quiet_uri, reason
from lab.machines.libvirt.placement import LAYOUT_FILE, LibvirtLayout, load_layout, save_layout
from lab.machines.libvirt.provider import LibvirtProvider
from lab.providers.provider import LabHandle
from lab.state.lock import HeldError


def query(uri: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(quiet_uri(uri)).query)


@pytest.mark.parametrize("uri", ["qemu:///system", "qemu+tls://hv1/system?pkipath=/pki"])
def test_what_does_not_go_over_ssh_is_left_as_it_is(uri):
    assert quiet_uri(uri) == uri


def test_ssh_never_prompts_and_keeps_the_inventorys_options():
    assert query("qemu+ssh://hv1/system")["no_tty"] == ["1"]
    found = query("qemu+ssh://ann@hv1:2222/system?keyfile=/k%20ey&no_verify=1&command=/my/ssh")
    wanted = {"keyfile": ["/k ey"], "no_verify": ["1"], "command": ["/my/ssh"]}
    assert found.items() >= wanted.items()
    assert urlsplit(quiet_uri("qemu+ssh://ann@hv1:2222/system")).netloc == "ann@hv1:2222"


def test_a_key_file_below_the_home_is_written_out_as_ssh_reads_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    own = pwd.getpwuid(os.getuid()).pw_dir
    assert query("qemu+ssh://hv1/system?keyfile=~/.ssh/lab")["keyfile"] == [f"{own}/.ssh/lab"]


def test_an_error_is_one_line_without_libvirt_s_own_repetition():
    assert reason(Exception("internal error: no\n  such thing")) == "no such thing"


def test_controllers_are_distinguished_and_stay_the_same():
    assert controller_id("one") == controller_id("one") != controller_id("two")
    assert "one" not in controller_id("one")


def test_machines_cloned_from_one_template_are_distinguished(monkeypatch):
    here = controller_id("one")
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="another"))
    assert controller_id("one") != here


# SECURITY.md: The state directory is the caller's own.
@pytest.mark.parametrize(
    "parameter",
    ["command=/tmp/evil", "netcat=/tmp/evil", "no_verify=1", "Command=/x", "proxy=auto;command=/x"],
)
def test_a_labs_record_names_no_program_and_drops_no_check(tmp_path, parameter):
    lab = LabHandle("a", tmp_path, "11")
    uri = f"qemu+ssh://ann@hv1/system?{parameter}&keyfile=/k%20ey"
    file = saved(lab, uri)
    assert parameter not in file.read_text()
    file.write_text(file.read_text().replace("?", f"?{parameter}&"))  # as earlier versions did
    layout = load_layout(lab)
    assert layout
    assert layout.homes["hv1"].uri.replace("proxy=auto&", "") == (
        "qemu+ssh://ann@hv1/system?keyfile=/k%20ey"
    )


def saved(lab: LabHandle, uri: str) -> Path:
    """The record of a lab with one machine on a hypervisor of that URI."""
    save_layout(lab, LibvirtLayout({"n": "hv1"}, {}, {"hv1": Hypervisor(name="hv1", uri=uri)}, {}))
    return lab.directory / LAYOUT_FILE


OLD = {
    "machines": {"n": "hv1"},
    "accelerated": {"hv1": True},
    "homes": {
        "hv1": {
            "name": "hv1",
            "uri": "qemu+ssh://ann@hv1/system?keyfile=/key",
            "vcpus": 8,
            "memory_mib": 65536,
            "disk_gib": 500,
            "tags": ["ssd"],
            "storage": "/srv/labs",
            "address": "192.0.2.11",
            "mtu": 9000,
            "acceleration": "kvm",
            "parallel_boots": 2,
            "line": 7,
        }
    },
    "users": {"n": "debian"},
    "windows": [],
    "bundle": "",
}
"""A record that was written when hypervisors were dataclasses."""


def test_a_record_of_an_earlier_version_is_read_and_written_the_same(tmp_path):
    lab = LabHandle("a", tmp_path, "11")
    file = tmp_path / LAYOUT_FILE
    file.write_text(json.dumps(OLD))
    layout = load_layout(lab)
    assert layout
    home = layout.homes["hv1"]
    assert (home.memory_mib, home.tags, home.line) == (65536, frozenset({"ssd"}), 7)
    save_layout(lab, layout)
    assert json.loads(file.read_text()) == OLD


@pytest.mark.parametrize(
    "uri",
    ["qemu+ext://h/system?command=/x", "qemu+ssh://-oProxyCommand=x/system", "test:///default"],
)
def test_a_record_with_a_uri_that_no_inventory_could_have_is_not_used(tmp_path, uri):
    lab = LabHandle("a", tmp_path, "11")
    file = saved(lab, "qemu:///system")
    layout = load_layout(lab)
    assert layout
    assert layout.homes["hv1"].uri == "qemu:///system"
    file.write_text(file.read_text().replace("qemu:///system", uri))
    assert load_layout(lab) is None


# SECURITY.md: The state directory is the caller's own.
def test_a_program_is_run_only_as_the_inventory_names_it(monkeypatch):
    opened: list[str] = []

    def refuse(hypervisor: Hypervisor) -> None:
        opened.append(hypervisor.uri)
        raise PreflightError("connecting", "No route to host", "see that the host is on")

    monkeypatch.setattr(connection, "connect", refuse)
    listed = Hypervisor(name="hv1", uri="qemu+ssh://ann@hv1/system?command=/my/ssh")
    gone = Hypervisor(name="hv2", uri="qemu+ssh://ann@hv2/system")
    kept = LibvirtLayout(
        {}, {}, {"hv1": Hypervisor(name="hv1", uri="qemu+ssh://eve@evil/system"), "hv2": gone}
    )
    inventory = STOCK.replace(hypervisors={"hv1": listed})
    hosts = LibvirtProvider(inventory)._hosts_with(kept)
    with pytest.raises(PreflightError) as refused:
        _ = hosts["hv1"].connected
    assert refused.value.hint == "see that the host is on"
    with pytest.raises(PreflightError, match="No route to host") as refused:
        _ = hosts["hv2"].connected
    assert opened == [listed.uri, gone.uri]
    assert refused.value.hint == (
        "see that the host is on; hypervisor 'hv2' is no longer in the inventory: add it "
        "to lab.toml again, with its complete URI"
    )


OWN = Hypervisor(name="own", uri="qemu:///system", line=3)
FAR = Hypervisor(name="far", uri="qemu+ssh://root@h.example/system", line=3)
SECURE = Hypervisor(name="secure", uri="qemu+tls://h.example/system", line=3)


class LibvirtError(Exception):
    """An error as libvirt's, with its code, domain and first number."""

    def __init__(self, code: int, message: str, domain: int = 7, number: int = -1) -> None:
        super().__init__(message)
        self.code, self.domain, self.number = code, domain, number

    def get_error_code(self) -> int:
        return self.code

    def get_error_domain(self) -> int:
        return self.domain

    def get_int1(self) -> int:
        return self.number


LIBRARY = SimpleNamespace(
    libvirtError=LibvirtError,
    VIR_ERR_INTERNAL_ERROR=1,
    VIR_ERR_SYSTEM_ERROR=38,
    VIR_ERR_AUTH_FAILED=45,
    VIR_ERR_OPERATION_INVALID=55,
    VIR_ERR_AUTH_CANCELLED=79,
    VIR_ERR_ACCESS_DENIED=88,
    VIR_ERR_AUTH_UNAVAILABLE=94,
    VIR_FROM_DBUS=47,
    VIR_FROM_POLKIT=60,
)
"""The numbers are those of libvirt/virterror.h."""


@pytest.fixture
def library(monkeypatch):
    monkeypatch.setattr(connection, "load", lambda: LIBRARY)


def no_polkit() -> LibvirtError:
    """As libvirt 9.0 says it to a plain user where D-Bus does not run."""
    return LibvirtError(1, "internal error: Unable to get the bus: No such file", domain=47)


def system_error(number: int, message: str = "reworded") -> LibvirtError:
    return LibvirtError(38, message, number=number)


def ssh_error(output: str) -> LibvirtError:
    """As libvirt 9.0 says it where ssh ended."""
    return system_error(errno.ECONNRESET, f"Cannot recv data: {output}: Connection reset by peer")


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("error", "hypervisor", "forbidden"),
    [
        (no_polkit(), OWN, True),
        (system_error(errno.EACCES), OWN, True),
        (LibvirtError(94, "reworded", domain=60), OWN, True),
        (LibvirtError(45, "reworded"), OWN, True),
        (system_error(errno.ENOENT, "Permission denied, says no code"), OWN, False),
        (LibvirtError(1, "polkit and authentication are only mentioned"), OWN, False),
        (LibvirtError(45, "authentication failed"), FAR, False),
    ],
)
def test_refusals_of_this_machines_own_libvirt_are_known(error, hypervisor, forbidden):
    assert connection.is_forbidden(error, hypervisor) == forbidden


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("error", "hypervisor", "hint"),
    [
        (ssh_error("root@h.example: Permission denied (publickey)"), FAR, "'keyfile=' in the URI"),
        (ssh_error("Host key verification failed."), FAR, "ssh-keyscan"),
        (ssh_error("ssh: connect to host h port 22: Connection refused"), FAR, "start its sshd"),
        (ssh_error("Failed to connect socket: No such file or directory"), FAR, "start libvirtd"),
        (LibvirtError(45, "reworded"), FAR, "allow this user to use libvirt there"),
        (system_error(errno.EACCES), OWN, "--groups libvirt"),
        (system_error(errno.ENOENT), OWN, "start libvirtd"),
        (system_error(errno.ECONNREFUSED), SECURE, "check that it listens"),
        (system_error(errno.EHOSTUNREACH), SECURE, "check that the host is running"),
        (system_error(errno.ENOENT), SECURE, "TLS certificates"),
        (LibvirtError(45, "reworded"), SECURE, "TLS certificates"),
        (ssh_error("nobody knows"), FAR, 'virsh -c "qemu+ssh://root@h.example/system" version'),
    ],
)
def test_a_refusal_has_its_own_hint(error, hypervisor, hint, monkeypatch):
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(connection, "_open_connection", refuse)
    monkeypatch.setattr(connection, "hear_events", lambda: None)
    with pytest.raises(PreflightError, match=f"hypervisor '{hypervisor.name}'") as refused:
        connection.connect(hypervisor)
    assert hint in refused.value.hint


@contextmanager
def another_user() -> Iterator[None]:
    """In the block, root is a user without any right."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_socket_that_only_others_may_open_is_forbidden_by_libvirt_itself(tmp_path):
    pytest.importorskip("libvirt", reason="libvirt-python is not installed")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    uri = f"qemu+unix:///system?socket={closed}/socket"
    with another_user(), pytest.raises(connection.ForbiddenError) as refused:
        connection.connect(Hypervisor(name="own", uri=uri, line=3))
    assert "--groups libvirt" in refused.value.hint


def test_a_socket_that_does_not_exist_is_not_forbidden(tmp_path):
    pytest.importorskip("libvirt", reason="libvirt-python is not installed")
    uri = f"qemu+unix:///system?socket={tmp_path}/socket"
    with pytest.raises(PreflightError) as refused:
        connection.connect(Hypervisor(name="own", uri=uri, line=3))
    assert not isinstance(refused.value, connection.ForbiddenError)
    assert "start libvirtd" in refused.value.hint


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("code", "message", "busy", "taken"),
    [
        (1, "internal error: pool 'default' has asynchronous jobs running.", True, False),
        (55, "operation failed: volume 'a' is still in use.", True, False),
        (55, "Requested operation is not valid: storage pool 'a' is not active", False, False),
        (1, "internal error: bridge name 'virbr7' already in use.", False, True),
        (1, "internal error: Network is already in use by interface eth0", False, True),
        (1, "internal error: no such bridge", False, False),
        (38, "cannot open volume 'has asynchronous jobs running'", False, False),
    ],
)
def test_what_is_busy_or_taken_is_known_by_code_and_words(code, message, busy, taken):
    error = LibvirtError(code, message)
    assert (connection.is_busy(error), connection.is_taken(error)) == (busy, taken)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("inventory", "error", "notes"),
    [
        (STOCK, no_polkit(), 0),
        (STOCK, system_error(errno.ECONNREFUSED), 1),
        (Inventory(hypervisors={"own": OWN}), no_polkit(), 1),
    ],
)
def test_only_who_asked_for_it_hears_of_a_libvirt_that_is_forbidden(
    inventory, error, notes, monkeypatch, capsys
):
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(connection, "_open_connection", refuse)
    monkeypatch.setattr(connection, "is_here", lambda _: True)
    assert LibvirtProvider(inventory).marks() == ()
    assert capsys.readouterr().err.count("note: connecting to") == notes


WHAT = "0123456789abcdef"


def handle(state: Path, name: str) -> LabHandle:
    return LabHandle(name, state / "labs" / name, f"{name}-token")


def test_another_lab_s_copy_is_waited_for_with_a_word_and_not_for_ever(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(bring_up, "ALL_SECONDS", 0.3)
    with (
        bring_up.copy_lock(handle(tmp_path, "first"), "rack1", WHAT),
        pytest.raises(HeldError, match="'lab up first'"),
        bring_up.copy_lock(handle(tmp_path, "second"), "rack1", WHAT),
    ):
        pass
    assert "'lab up first'" in capsys.readouterr().err
    assert not list((tmp_path / "copying").iterdir())


def test_another_hypervisor_s_copy_is_not_waited_for(tmp_path):
    with (
        bring_up.copy_lock(handle(tmp_path, "first"), "rack1", WHAT),
        bring_up.copy_lock(handle(tmp_path, "second"), "rack2", WHAT),
    ):
        pass
