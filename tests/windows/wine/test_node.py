"""The programs of a Wine node's own disk."""

import re
import subprocess
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import cast

import pytest
from shipped import intent_of

from lab._deadline import Deadline
from lab.machines.agents.exec_probes import read_addresses
from lab.machines.bundle.manifest import Blob, Program
from lab.shells.shell import Completed, Shell
from lab.windows.wine.node import files, run_script
from lab.windows.wine.runtime.places import PREFIX
from lab.windows.wine.shell import WineShell
from lab.windows.wine.system import WINE
from lab.windows.wine.template import ENVIRONMENT, MODULES


@pytest.fixture
def windows_run(tmp_path: Path) -> Path:
    """The script, with a drive C that has agnhost.exe; wine and curl print their words."""
    drive, programs = tmp_path / "drive", tmp_path / "bin"
    drive.mkdir()
    programs.mkdir()
    (drive / "agnhost.exe").touch()
    (drive / "windows" / "temp").mkdir(parents=True)
    for name in ("wine", "curl", "tar"):
        words = "printf ' %s' \"$@\""
        (programs / name).write_text(f"#!/bin/sh\nprintf {name}\n{words}\n")
        (programs / name).chmod(0o755)
    script = run_script().replace(PREFIX, str(drive))
    script = script.replace(f"PATH='{ENVIRONMENT['PATH']}'", f"PATH='{programs}:/usr/bin:/bin'")
    (tmp_path / "windows-run").write_text(script)
    return tmp_path / "windows-run"


@pytest.mark.parametrize(
    ("words", "started"),
    [
        (("/agnhost", "netexec"), "wine C:/agnhost.exe netexec"),
        (("C:\\agnhost", "pause"), "wine C:\\agnhost.exe pause"),
        (("%CONTAINER_SANDBOX_MOUNT_POINT%/agnhost", "pause"), "wine C:/agnhost.exe pause"),
        (("cmd", "/c", "ver"), "wine cmd /c ver"),
        (("curl", "--silent"), "curl --silent"),
        (("tar", "-xmf", "-", "-C", "/"), "tar -xmf - -C ."),
        (("tar", "cf", "-", "C:\\my files\\a.txt"), "tar cf - my files/a.txt"),
        (("tar.exe", "cf", "-", "/conf/word"), "tar cf - conf/word"),
        (("tar", "-xmf", "-", "-C", "/Windows/Temp"), "tar -xmf - -C windows/temp"),
        (("tar", "cf", "-", "C:\\WINDOWS\\new.txt"), "tar cf - windows/new.txt"),
    ],
)
def test_a_program_is_found_as_windows_finds_it(
    windows_run: Path, words: tuple[str, ...], started: str
) -> None:
    done = subprocess.run(
        ("sh", str(windows_run), *words), capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout.strip() == started


def test_names_in_curls_configuration_are_looked_up_by_a_windows_program(
    windows_run: Path,
) -> None:
    programs = windows_run.parent / "bin"
    (programs / "wine").write_text(
        "#!/bin/sh\nprintf '%s\\r\\n' 'web.probe 10.96.0.20 10.96.0.21 10.96.0.22' 'web.none -'\n"
        'echo "$@" >&2\n'
    )
    (programs / "curl").write_text("#!/bin/sh\ncat\n")
    asked = "".join(
        f'url = "http://{host}:80/hostname"\n' for host in ("web.probe", "web.none", "10.0.0.1")
    )
    for verbose in ((), ("--verbose",)):
        done = subprocess.run(
            ("sh", str(windows_run), "curl", "--silent", *verbose, "--config", "-"),
            input=asked,
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        looked_up, *addresses = done.stderr.splitlines()
        assert looked_up.split() == ["hybridlab-names.exe", "web.none", "web.probe"]
        every = "10.96.0.20, 10.96.0.21, 10.96.0.22"
        assert read_addresses("\n".join(addresses)) == ({"web.probe": every} if verbose else {})
        hosts = [line.split("//")[1].split(":")[0] for line in done.stdout.splitlines()]
        assert hosts == ["10.96.0.20", "web.none.invalid", "10.0.0.1"]


def test_packets_of_a_node_are_captured_at_the_devices_that_hns_makes() -> None:
    (overlaid, *_) = (each for each in intent_of("overlay").machines if each.os == "windows")
    (bridged, *_) = (each for each in intent_of("host-gateway").machines if each.os == "windows")
    assert overlaid.tunnel
    assert overlaid.bridge
    devices = {overlaid.bridge.name: "hns", overlaid.tunnel.name: "vxlan4096"}
    assert WINE.devices(overlaid) == devices
    assert bridged.bridge
    assert WINE.devices(bridged) == {bridged.bridge.name: "hns"}


def test_a_node_asks_the_name_server_of_its_nodes() -> None:
    (machine, *_) = (
        machine for machine in intent_of("kubeinit").machines if machine.os == "windows"
    )
    assert machine.resolver is not None
    text = files(machine, "2022")["/etc/resolv.conf"].decode()
    assert f"nameserver {machine.resolver.server}\n" in text


def test_every_cmdlet_that_takes_an_interface_takes_its_short_name() -> None:
    """flanneld says ``Set-NetIPInterface -ifIndex``, which is Windows' alias."""
    texts = [path.read_text(encoding="utf-8") for path in MODULES.glob("*.psm1")]
    parameters = [each for text in texts for each in re.findall(r".*\]\$InterfaceIndex", text)]
    assert parameters
    assert [each for each in parameters if "[Alias('ifIndex')]" not in each] == []


class HostShell:
    """A node's Linux on this machine, whose drive C is a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def run(self, command: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        del deadline, stdin
        words = [word.replace(PREFIX, str(self._root)) for word in command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
        return Completed(done.returncode, done.stdout.replace(str(self._root), PREFIX), done.stderr)


def test_a_program_is_in_place_if_drive_c_has_it_unchanged(tmp_path: Path) -> None:
    contents = {"kubelet.exe": b"a", "cni/flannel.exe": b"b", "ctr.exe": b"c", "kubeadm.exe": b"d"}
    programs = [
        Program(name, name, "windows", Blob(sha256(content).hexdigest(), len(content)), "")
        for name, content in contents.items()
    ]
    for path, content in (
        ("k/kubelet.exe", b"a"),
        ("opt/cni/bin/flannel.exe", b"b"),
        ("Program Files/containerd/ctr.exe", b"another"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    shell = WineShell("win1", cast("Shell", HostShell(tmp_path)))
    assert shell.in_place(programs) == {"kubelet.exe", "cni/flannel.exe"}


class LinuxShell:
    """A node's Linux, which answers with the command; PowerShell's are not Linux's."""

    def run(self, command: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        del deadline, stdin
        return Completed(0, command[-1] if command[0] == "sh" else "of Windows", "")


def test_evidence_of_what_stands_in_is_asked_of_linux() -> None:
    shell = WineShell("win1", cast("Shell", LinuxShell()))
    pieces = (*WINE.node_evidence(shell), *WINE.machine_evidence(shell))
    said = {file: make(Deadline(20)) for file, make in pieces if file != "facts.json"}
    assert "--unit=hybridlab-hns" in said["containerd.log"]
    assert said["crictl.txt"].startswith("/usr/local/bin/ctr ")
    assert said["hns.txt"] == "cat /var/lib/hybridlab/hns/state.json"
    assert said["hns-calls.jsonl"] == "cat /var/lib/hybridlab/hns/calls.jsonl"
    assert said["kubelet.log"] == "of Windows"
