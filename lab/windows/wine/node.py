"""The files of a Wine node's own disk: what its Linux starts, and how programs get onto Wine. Pure.

Its units, in the order in which they start: the card's address (``hybridlab-network``), folders
that both worlds share (``hybridlab-folders``), Linux's containerd, HNS' daemon, the translating
runtime, and ``hybridlab-windows``, which is Windows being on: its keeper starts the services.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

from lab.machines.evidence import LOG_LINES
from lab.machines.images.terms import RELEASES, Year
from lab.providers.netns.namespaces import resolver_text
from lab.topology.intent import MachineIntent
from lab.windows.wine import pages
from lab.windows.wine.runtime import powershell
from lab.windows.wine.runtime.places import CONSOLE, PREFIX, RUN, linux_path
from lab.windows.wine.template import ENVIRONMENT

SHELL = powershell.SHELL
PACKAGE = "/usr/lib/hybridlab"
KEPT = (
    "env",
    f"PYTHONPATH={PACKAGE}",
    "python3",
    "-m",
    "lab.windows.wine.runtime.powershell",
    "run",
)
"""Runs PowerShell's command line by the PowerShell that is kept on the node."""
BUNDLE, LINUX_BUNDLE = "/run/hybridlab/bundle", "/run/hybridlab/linux-bundle"
SOCKET = "/run/containerd/containerd.sock"
WINDOWS_UNIT = "hybridlab-windows.service"
_BIN = "/usr/local/bin"
_PLUGINS = ("flannel", "sdnoverlay", "sdnbridge", "win-bridge", "win-overlay", "nat", "azure-vnet")
"""Types of CNI configurations that the lab writes on Windows nodes."""
HNS = "/var/lib/hybridlab/hns"
"""Where HNS keeps its objects, and its questions and answers."""
_UNITS = "/etc/systemd/system"
_CTR = f"{_BIN}/ctr --namespace=k8s.io"
EVIDENCE: Mapping[str, str] = {
    "containerd.log": (
        f"journalctl --no-pager --output=short-iso --lines={LOG_LINES} "
        "--unit=containerd --unit=hybridlab-runtime --unit=hybridlab-hns"
    ),
    "crictl.txt": f"{_CTR} containers list; {_CTR} tasks list; {_CTR} images list",
    "hns.txt": f"cat {HNS}/state.json",
}
"""Files of a node's evidence that Linux has, and the command whose output each contains."""
PAGES = "pages"
"""Folder of drive D with the files of :mod:`lab.windows.wine.pages`."""
SANDBOX = "sandbox-image"
"""File of drive D with the name of the image of pods' sandboxes."""
BASE = "base-layer"
"""File of drive D with digest and size of the layer that images of Windows pods begin with."""


def files(machine: MachineIntent, year: Year) -> Mapping[str, bytes]:
    """Every file by path."""
    texts = {
        RUN: run_script(),
        CONSOLE: CONSOLE_SCRIPT,
        SHELL: _SHELL,
        f"{_BIN}/hybridlab-network": _network(machine),
        f"{_BIN}/hybridlab-folders": _FOLDERS,
        f"{_BIN}/hybridlab-clear": _CLEAR,
        "/etc/hybridlab/containerd.toml": _CONTAINERD,
        f"{_UNITS}/multi-user.target.d/hybridlab.conf": _wanted(),
        **dict(_units(machine, year)),
        **{f"/opt/cni/bin/{name}": _plugin(name) for name in _PLUGINS},
    }
    if machine.resolver:
        texts["/etc/resolv.conf"] = resolver_text(machine.resolver)
    serve = (Path(__file__).parent / "runtime" / "serve.ps1").read_bytes()
    written = {path: text.encode() for path, text in texts.items()}
    return written | {linux_path(powershell.SERVE): serve} | dict(_package())


def _package() -> Iterator[tuple[str, bytes]]:
    """The lab's own package, whose HNS and runtime run on the node."""
    root = Path(__file__).parents[2]
    for path in root.rglob("*.py"):
        yield f"{PACKAGE}/lab/{path.relative_to(root)}", path.read_bytes()


_OF_LINUX = r"""in_any_case() { # a file's path on drive C, as its names are written there
    left=$(printf %s "$1" | sed -E 's|^[Cc]:||; s|\\|/|g; s|/+|/|g; s|^/||; s|/$||')/ at=.
    while [ -n "$left" ]; do
        name=${left%%/*} left=${left#*/}
        if [ -n "$name" ] && [ ! -e "$at/$name" ]; then
            like=$(printf %s "$name" | sed 's|[][*?\\]|\\&|g')
            other=$(find "$at" -mindepth 1 -maxdepth 1 -iname "$like" -printf '%f\n' 2>/dev/null)
            name=$(printf '%s\n' "${other:-$name}" | head -n 1)
        fi
        at=$at${name:+/$name}
    done
    printf %s "${at#./}"
}
case $program in
curl | curl.exe)
    # Windows has curl.exe, and Wine none: curl is Linux's, in the same network namespace. The names
    # in its configuration are looked up by a Windows program: Windows' resolver is what is asked,
    # and its addresses are said as curl says them. Where no server answers within 4 s, curl asks in
    # vain, too; Wine's programs do not take SIGTERM.
    case " $* " in *" --config - "*) ;; *) exec curl "$@" ;; esac
    configuration=$(cat)
    names=$(printf '%s\n' "$configuration" |
        sed -nE 's|^url = "http://([^/:"]*[A-Za-z][^/:"]*):.*|\1|p' | sort -u)
    found=$([ -z "$names" ] || RES_OPTIONS="timeout:1 attempts:1" \
        timeout --signal=KILL 4 wine hybridlab-names.exe $names | tr -d '\r')
    changes=$(printf '%s\n' "$found" |
        sed -nE 's/^(.*) -$/\1 \1.invalid/; s#^([^ ]+) ([^ ]+).*#s|//\1:|//\2:|#p')
    case " $* " in *" --verbose "*)
        printf '%s\n' "$found" | sed -nE 's/ -$//; / /{
            s/^([^ ]+) (.*)/* Host \1:0 was resolved.\n* IPv4: \2/; s/([0-9]) ([0-9])/\1, \2/g; p
        }' >&2
        ;;
    esac
    printf '%s\n' "$configuration" | sed "$changes" | exec curl "$@"
    exit
    ;;
tar | tar.exe)
    # As curl; kubectl cp runs it. A path without a drive is on drive C.
    cd @PREFIX@
    for word in "$@"; do
        case $word in
        [Cc]:* | /* | \\*) word=$(in_any_case "$word") ;;
        esac
        set -- "$@" "$word"
        shift
    done
    exec tar "$@"
    ;;
esac
"""


def run_script() -> str:
    """The program that runs a Windows program, on a node and in pods' images."""
    settings = "".join(f"export {name}='{value}'\n" for name, value in ENVIRONMENT.items())
    return f"""#!/bin/sh
# Runs a Windows program on Wine. A path without a drive is on drive C; .exe may be left out.
case ${{PATH-}} in *\\\\*) export WINEPATH="$PATH" ;; esac # Windows' own, of an image or a pod
{settings}program=$1
shift
{_OF_LINUX.replace("@PREFIX@", PREFIX)}case $program in
%CONTAINER_SANDBOX_MOUNT_POINT%*) program="C:${{program#%CONTAINER_SANDBOX_MOUNT_POINT%}}" ;;
/*) program="C:$program" ;;
esac
file=$(printf %s "${{program#C:}}" | tr '\\\\' /)
[ -e "{PREFIX}$file" ] || [ ! -e "{PREFIX}$file.exe" ] || program="$program.exe"
[ "$PWD" != / ] || cd {PREFIX}
[ -z "${{CONTAINER_SANDBOX_MOUNT_POINT-}}" ] || ln -sfn . {PREFIX}/hpc # of a host process
case $program in
*[Pp]ower[Ss]hell | *[Pp]ower[Ss]hell.exe | *pwsh | *pwsh.exe)
    [ -t 0 ] || exec {CONSOLE} wine "$program" "$@" # without a console it ends at once
    ;;
esac
exec wine "$program" "$@"
"""


CONSOLE_SCRIPT = '''#!/usr/bin/python3
"""Runs a command with a console as its standard input, whatever this process has."""
import fcntl
import os
import pty
import subprocess
import sys
import termios
import threading

command = sys.argv[1:]
if os.isatty(0):
    os.execvp(command[0], command)
main, own = pty.openpty()


def drain():
    try:
        while os.read(main, 4096):
            pass
    except OSError:
        pass


threading.Thread(target=drain, daemon=True).start()
process = subprocess.Popen(
    command,
    stdin=own,
    start_new_session=True,
    preexec_fn=lambda: fcntl.ioctl(own, termios.TIOCSCTTY, 0),
)
code = process.wait()
if code < 0:  # as the program was ended, so that the task's unit knows
    os.kill(os.getpid(), -code)
sys.exit(code)
'''
_SHELL = rf"""#!/bin/sh
# Runs a Windows program elevated and with a console, whatever this process has for a terminal.
program=$(printf %s "$1" | tr '[:upper:]' '[:lower:]')
case $program in
curl | curl.exe | tar | tar.exe) shift && exec {RUN} "$program" "$@" ;; # Linux's
esac
exec {CONSOLE} {RUN} 'C:\windows\system32\elevated.exe' "$@"
"""

_FOLDERS = f"""#!/bin/sh
# Folders that are the same for Windows and for Linux, whose programs are in both.
set -e
cd {PREFIX}
mkdir -p var/lib/kubelet var/log/pods hybridlab/log hybridlab/state
touch hybridlab/started # when the machine started, for CimCmdlets
for folder in etc/kubernetes etc/cni/net.d run/flannel var/lib/cni; do
    mkdir -p $folder /$folder
    mount --bind $folder /$folder
done
mount --bind /var/lib/kubelet var/lib/kubelet
mount --bind /var/log/pods var/log/pods
ln -sfn {BUNDLE} /wine/dosdevices/d:
ln -sfn {BUNDLE}/{PAGES} {pages.FOLDER}
rm -f /wine/dosdevices/com*
for program in containerd containerd-shim-runc-v2 ctr runc; do
    ln -sf {LINUX_BUNDLE}/bin/$program {_BIN}/$program
done
mkdir -p /etc/containerd
ln -sf {LINUX_BUNDLE}/cni/loopback /opt/cni/bin/loopback # containerd calls it for each pod
sandbox=$(cat {BUNDLE}/{SANDBOX})
sed "s|@SANDBOX@|$sandbox|" /etc/hybridlab/containerd.toml >/etc/containerd/config.toml
[ -e /etc/resolv.conf ] || : >/etc/resolv.conf
"""


_CLEAR = """#!/bin/sh
# Ends the node's programs of a wineserver that is gone: they would wait for it for ever.
# Those of pods have mount namespaces of their own.
own=$(readlink /proc/1/ns/mnt)
for process in /proc/[0-9]*; do
    [ "$(readlink "$process/ns/mnt")" = "$own" ] || continue
    case $(readlink "$process/exe") in
    /usr/lib/wine/*) kill -9 "${process#/proc/}" ;;
    esac
done
exit 0
"""


def _network(machine: MachineIntent) -> str:
    """The cards' addresses and the default route; all else is Windows' own, by the lab's steps."""
    lines = ["#!/bin/sh", "set -e", "ip link set lo up"]
    for card in machine.interfaces:
        lines.append(f"ip link set {card.name} up")
        lines += [f"ip address replace {address} dev {card.name}" for address in card.addresses]
    lines += [
        f"ip route replace default via {route.via} dev {route.device}"
        for route in machine.routes
        if route.destination == "default" and route.via
    ]
    return "\n".join(lines) + "\n"


_CONTAINERD = f"""version = 3

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '@SANDBOX@'

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
privileged_without_host_devices = true

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = '{_BIN}/runc'
"""
"""Linux's containerd. Without systemd's control groups: a Windows kubelet names none."""


def _plugin(name: str) -> str:
    module = "lab.windows.wine.runtime.plugin"
    return f"#!/bin/sh\nPYTHONPATH={PACKAGE} exec python3 -m {module} {name}\n"


def _wanted() -> str:
    return "[Unit]\n" + "".join(f"Wants={name}\n" for name in NAMES)


NAMES = (
    "hybridlab-network.service",
    "hybridlab-folders.service",
    "containerd.service",
    "hybridlab-hns.service",
    "hybridlab-runtime.service",
    WINDOWS_UNIT,
    "hybridlab-powershell.socket",
)


_PYTHON = f"/usr/bin/env PYTHONPATH={PACKAGE} python3 -m lab.windows.wine"
_POWERSHELL_UNITS: Mapping[str, str] = {
    "hybridlab-powershell.socket": f"""[Unit]
Description=PowerShell of the lab's scripts

[Socket]
ListenStream={powershell.SOCKET}
""",
    "hybridlab-powershell.service": f"""[Unit]
Description=PowerShell of the lab's scripts
After={WINDOWS_UNIT}

[Service]
ExecStart={_PYTHON}.runtime.powershell serve
""",
    "hybridlab-task@.service": f"""[Unit]
Description=Scheduled task %i of Windows
After={WINDOWS_UNIT}

[Service]
ExecStart={_PYTHON}.runtime.tasks run %i
Restart=on-abnormal
RestartSec=1

[Install]
WantedBy=multi-user.target
""",
}


def _units(machine: MachineIntent, year: Year) -> Iterator[tuple[str, str]]:
    cards = " ".join(card.name for card in machine.interfaces)
    build = RELEASES[year].build
    uuid = uuid5(NAMESPACE_OID, " ".join(card.mac for card in machine.interfaces))
    environment = "".join(f"Environment={name}={value}\n" for name, value in ENVIRONMENT.items())
    once = "Type=oneshot\nRemainAfterExit=yes\n"
    always = "Restart=always\nRestartSec=1\n"
    services = (
        (
            "network",
            "Addresses of the node's cards",
            "",
            f"{once}ExecStart={_BIN}/hybridlab-network\n",
        ),
        (
            "folders",
            "Folders of Windows and Linux",
            "",
            f"{once}ExecStart={_BIN}/hybridlab-folders\n",
        ),
        (
            "hns",
            "Host Networking Service of Windows, emulated",
            "hybridlab-network",
            f"{always}ExecStart={_PYTHON}.hns.daemon {HNS} {build} {cards}\n",
        ),
        (
            "runtime",
            "CRI of Windows over Linux's containerd",
            "containerd",
            f"{always}ExecStart={_PYTHON}.runtime.service {SOCKET} {_BIN}/ctr\n",
        ),
        (
            "windows",
            "Windows, on Wine",
            "hybridlab-hns hybridlab-runtime",
            f"{always}{environment}WorkingDirectory={PREFIX}\n{_WINDOWS.format(uuid=uuid)}",
        ),
    )
    for name, title, before, body in services:
        units = ("hybridlab-folders", *before.split())
        after = "".join(f"After={unit}.service\n" for unit in units)
        order = after if name not in {"network", "folders"} else ""
        unit = f"[Unit]\nDescription={title}\n{order}\n[Service]\n{body}"
        yield f"{_UNITS}/hybridlab-{name}.service", unit
    yield f"{_UNITS}/containerd.service", f"{_CONTAINERD_UNIT}{always}"
    yield from ((f"{_UNITS}/{name}", text) for name, text in _POWERSHELL_UNITS.items())


_WINDOWS = f"""ExecStartPre={_BIN}/hybridlab-clear
ExecStart=/usr/bin/wine C:\\\\windows\\\\system32\\\\keeper.exe {{{{{{uuid}}}}}}
ExecStop=/usr/bin/wineserver --kill
TimeoutStopSec=10
"""
_CONTAINERD_UNIT = f"""[Unit]
Description=containerd
After=hybridlab-folders.service

[Service]
ExecStart={_BIN}/containerd
Type=notify
Delegate=yes
KillMode=process
TasksMax=infinity
"""
