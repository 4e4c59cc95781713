"""What only a real Windows shows: the checks of its first day, run where they can be, in one file.

They are those of ``docs/how-to/first-windows.md``, which a test holds to this table.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from lab._deadline import Deadline
from lab._errors import LabError
from lab.imaging.golden import GoldenImage
from lab.imaging.windows import offline
from lab.imaging.windows.settings import mask
from lab.lifecycle.session import OpenLab
from lab.remote.windows import encoded_command

_SECONDS = 120.0
"""For one command on a node."""
_CLOCK_SECONDS = 60
_LINES = 200
"""Of each log, the last ones."""


@dataclass(frozen=True, slots=True)
class Check:
    """One of them."""

    number: int
    title: str
    where: Literal["console", "disk", "node"]
    """What is asked: the console log of the image's build, its disk, or each Windows node."""
    command: str
    """PowerShell for a node; a shell's line for the host."""
    expected: str
    change: str
    """What to change if it is not so."""
    pattern: str = ""
    """What a right answer has; without one a person reads it."""


CHECKS: tuple[Check, ...] = (
    Check(
        1,
        "Setup starts, and its phases are told from outside",
        "console",
        "lab image build windows-server-2022",
        "starting, disk and copy by the disk's growth, within 15 min each; a picture of each wait "
        "that ended too late",
        "a phase that is told too late: the figures of 'deadlines' in the recipe; a dialog in the "
        "picture: the answer file",
        r"(?s)phase specialize.*phase first-logon.*phase ready",
    ),
    Check(
        2,
        "Setup has found the drivers",
        "node",
        r"Select-String -Path C:\Windows\Panther\setupact.log -Pattern 'Drivers? Path'; "
        r"pnputil /enum-drivers | Select-String 'viostor|netkvm'",
        "viostor.inf and netkvm.inf; on 2025 'Drivers Path' is not empty",
        "the medium's letter: LETTERS and driver_paths of lab/imaging/windows/answer.py",
        r"(?is)(viostor.*netkvm|netkvm.*viostor)",
    ),
    Check(
        3,
        "The sealed disk keeps no answer file",
        "disk",
        "lab image check-windows windows-server-2022",
        "no unattend.xml in Panther, in Sysprep or in the root of C",
        "which one, says the check: that medium was in when sysprep ran",
        "^none$",
    ),
    Check(
        4,
        "kubeadm finds kubelet, and the node has joined",
        "node",
        r"kubelet --version; (Get-Service kubelet).Status; Get-Item C:\etc\kubernetes\kubelet.conf",
        "Kubernetes v1..., Running, the file",
        "C:\\k on PATH: images/windows/cluster/node-join.ps1",
        r"(?s)Kubernetes v1\..*Running.*kubelet\.conf",
    ),
    Check(
        5,
        "flanneld has made its network, also after a restart of the node",
        "node",
        "Get-HnsNetwork | Format-Table Name, Type, ManagementIP; "
        "(Get-ScheduledTask hybridlab-flanneld).State; "
        r"Get-Content C:\hybridlab\log\node-keep.log -Tail 20",
        "flannel.4096 with the node's own address on an overlay, cbr0 or l2bridge on a bridge; the "
        "task Running where flannel is; the same a minute after 'Restart-Computer -Force'",
        "no address: Restore-Card in images/windows/cluster/cluster.psm1; 0x57: another HNS "
        "network holds the card",
        r"flannel\.4096|cbr0|l2bridge|Calico",
    ),
    Check(
        6,
        "The node's own endpoint is attached (bridges), also after a restart",
        "node",
        "Get-HnsEndpoint | Format-Table Name, IPAddress, State; "
        r"Get-Content C:\hybridlab\log\hns-make.log -Tail 30",
        "cbr0 or cbr0_ep with network + 2; 'made anew' at most once",
        "what HNS says there: Add-Network (with or without the adapter's name) and "
        "Add-HostEndpoint in images/windows/cluster/cluster.psm1; forwarding on the card's own "
        "interface, if routes of the host lead nowhere",
    ),
    Check(
        7,
        "The clock is right",
        "node",
        "w32tm /query /status; 'now ' + (Get-Date).ToUniversalTime().ToString('o')",
        "within a minute of this machine's clock",
        "off by whole hours: RealTimeIsUniversal in lab/imaging/windows/answer.py, and the clock "
        "of lab/providers/libvirt/templates/windows.xml",
        r"now \d{4}-\d\d-\d\dT",
    ),
    Check(
        8,
        "The MTU is the plan's, and large packets pass",
        "node",
        "Get-NetIPInterface -AddressFamily IPv4 | Format-Table InterfaceAlias, NlMtu; "
        "Get-NetAdapterRsc | Format-Table Name, IPv4Enabled; Get-NetAdapterLso | Format-Table",
        "the plan's MTU, or 1450 behind a switch; 'lab test -k large' green",
        "refused MTU: C:\\hybridlab\\log\\hns-make.log or node-keep.log; large cells red: "
        "Disable-NetAdapterRsc and Disable-NetAdapterLso on the card, and a newer virtio-win",
    ),
    Check(
        9,
        "containerd has the images of this build",
        "node",
        r"& 'C:\Program Files\containerd\ctr.exe' -n k8s.io images ls -q",
        "pause and agnhost",
        "the flags of 'ctr images import' in images/windows/cluster/node-images.ps1",
        r"(?s)(pause.*agnhost|agnhost.*pause)",
    ),
    Check(
        10,
        "Hyper-V's networking is on, its hypervisor as the recipe says",
        "node",
        "Get-WindowsOptionalFeature -Online -FeatureName 'Microsoft-Hyper-V*' | "
        "Format-Table FeatureName, State",
        "Microsoft-Hyper-V Enabled, Microsoft-Hyper-V-Online Disabled",
        "the step features; a machine that hangs at its start: fewer enlightenments in "
        "lab/providers/libvirt/templates/windows.xml",
        r"Microsoft-Hyper-V\s+Enabled",
    ),
    Check(
        11,
        "Firmware is what was asked for",
        "node",
        "$env:firmware_type; (Get-CimInstance Win32_OperatingSystem).Caption",
        "UEFI or Legacy; BIOS with 2025 is allowed, and rare",
        "'--firmware uefi' for 2025",
        r"(?i)uefi|legacy",
    ),
    Check(
        12,
        "sysprep has logged no error",
        "node",
        r"'errors:'; Get-Content C:\Windows\System32\Sysprep\Panther\setuperr.log -Tail 20",
        "nothing after 'errors:'",
        "a package: 'packages' of the step sysprep-prepare; /mode:vm: images/windows/sysprep.ps1",
        r"\Aerrors:\s*\Z",
    ),
    Check(
        13,
        "The guest tools run",
        "node",
        "(Get-Service QEMU-GA).Status",
        "Running",
        "C:\\hybridlab\\log\\guest-tools.log; a question of the publisher's on the picture",
        "Running",
    ),
    Check(
        14,
        "COM1 works from specialize on",
        "console",
        "cat CACHE/logs/windows-server-2022.log",
        "'phase specialize' and every step of the first logon",
        "EMS holds the port: bcdedit /ems off; the echo in lab/imaging/windows/answer.py",
        r"(?s)phase specialize.*step \w+",
    ),
    Check(
        15,
        "WinRM takes NTLM over TLS alone",
        "node",
        "winrm get winrm/config/service",
        "AllowUnencrypted = false, Basic = false, Negotiate = true",
        "Enable-WinRm in images/windows/hybridlab.psm1",
        r"(?s)AllowUnencrypted = false.*Basic = false.*Negotiate = true",
    ),
    Check(
        16,
        "What differs in 2025",
        "node",
        "[Environment]::OSVersion.Version; "
        r"Get-ItemProperty HKLM:\SYSTEM\CurrentControlSet\Policies\Microsoft\FeatureManagement"
        r"\Overrides",
        "20348 with 1114842764 = 0, 26100 with 520997518 = 1; joining with 2025 is refused until a "
        "bundle has its images",
        "OF_RELEASE of lab/imaging/windows/steps.py; pause 3.10 and agnhost with ltsc2025",
    ),
    Check(
        17,
        "OpenSSH is ours",
        "node",
        "(Get-Service sshd).Status; Get-NetFirewallRule -Name '*ssh*' | Format-Table Name, Enabled",
        "Running; hybridlab-ssh True, Windows' own rule False",
        "'--openssh OpenSSH-Win64.zip' where Windows Update is not reached",
        r"(?s)Running.*hybridlab-ssh\s+True",
    ),
    Check(
        18,
        "kube-proxy settles, and leaves no policies behind",
        "node",
        "(Get-Service kube-proxy).Status; (Get-HnsPolicyList | Measure-Object).Count; "
        "(Get-WinEvent -FilterHashtable @{ LogName = 'System'; Id = 7031 } -MaxEvents 50 "
        "-ErrorAction SilentlyContinue | Measure-Object).Count",
        "Running, some policies, and no more service failures a minute after the network is there",
        "clear_policies of the step node-service",
        "Running",
    ),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one of them has said."""

    check: Check
    of: str
    """The node, or the image."""
    said: str
    verdict: Literal["as expected", "differs", "to be read", "not run"]


def run(name: str, image: GoldenImage | None, logs: Path, lab: OpenLab | None) -> Iterator[Answer]:
    """Run those that can be: without an image or a lab, fewer.

    Parameters
    ----------
    name
        Of the image.
    logs
        Where builds keep their consoles.

    """
    nodes = [one.name for one in lab.intent.machines if one.os == "windows"] if lab else []
    for check in CHECKS:
        if check.where == "console":
            log = logs / f"{name}.log"
            text = log.read_text(encoding="ascii", errors="replace") if log.exists() else ""
            yield _judged(check, name, text, why=f"there is no '{log}'")
        elif check.where == "disk":
            kept = _kept(image) if image else ""
            yield _judged(check, name, kept, why="it is not built")
        elif lab is None or not nodes:
            yield Answer(check, "", "no lab with a Windows node was named", "not run")
        else:
            yield from (_asked(check, lab, node) for node in nodes)


def _kept(image: GoldenImage) -> str:
    try:
        with TemporaryDirectory(dir=image.disk.parent.parent) as scratch:
            offline.refuse_answer_files(image.disk, Path(scratch), f"checking image '{image.name}'")
    except LabError as error:
        return error.happened
    return "none"


def _asked(check: Check, lab: OpenLab, node: str) -> Answer:
    try:
        machine = lab.provider.machine(lab.handle, lab.intent, node)
        done = machine.run(encoded_command(check.command), Deadline(_SECONDS))
    except LabError as error:
        return Answer(check, node, str(error), "not run")
    said = done.stdout + (f"\n{done.stderr}" if done.stderr.strip() else "")
    return _judged(check, node, said, why="it said nothing")


def _judged(check: Check, of: str, said: str, why: str) -> Answer:
    text = mask("\n".join(said.splitlines()[-_LINES:]).strip())
    if not text:
        return Answer(check, of, why, "not run")
    if not check.pattern:
        return Answer(check, of, text, "to be read")
    right = re.search(check.pattern, text) is not None
    if right and (clock := re.search(r"^now (\S{19})", text, re.MULTILINE)):
        moment = datetime.fromisoformat(clock[1]).replace(tzinfo=UTC)
        right = abs(moment.timestamp() - time.time()) < _CLOCK_SECONDS
    return Answer(check, of, text, "as expected" if right else "differs")


def describe(check: Check) -> str:
    """The check as the how-to has it."""
    return (
        f"### {check.number}. {check.title}\n\n```\n{check.command}\n```\n\n"
        f"Expected: {check.expected}.\n\nIf not: {check.change}.\n"
    )


def report(answers: Iterator[Answer], tell: list[str]) -> str:
    """One file to send; ``tell`` gets a line for each answer."""
    parts = []
    for one in answers:
        line = f"{one.check.number:2} {one.verdict}: {one.check.title}"
        tell.append(f"{line} ({one.of})" if one.of else line)
        parts.append(f"{describe(one.check)}\n{one.verdict} {one.of}\n\n```\n{one.said}\n```\n")
    return "\n".join(("# First Windows", "", *tell, "", *parts))
