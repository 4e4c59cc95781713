"""What a cluster shows of itself, for the evidence archive: nodes, logs, and the API's tables.

Whoever writes the archive takes secrets out of every piece; none is asked for here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lab._deadline import Deadline
from lab._errors import DeadlineError, LabError
from lab.cluster.observers import linux, windows
from lab.cluster.observers.facts import NodeFacts
from lab.cluster.observers.wide import PATHS, table
from lab.guests.shell import GuestShell
from lab.guests.windows_shell import WindowsShell
from lab.guests.windows_steps import StepError

Piece = tuple[str, bytes]
"""Path within the archive, and what stands there."""
Ask = Callable[[str, Deadline], Mapping[str, Any]]
"""Gets a path of the API: ``ask("/api/v1/nodes", deadline)``."""

EACH_SECONDS = 20.0
"""For one piece, on a node that is well; the caller's patience multiplies it."""
_LINES = 2000
_LOG = ".log"

RECENTLY = "--since=-15min"
"""What explains a connection that fails now: a node's start is full of what was not there yet."""
_JOURNAL = f"journalctl --lines={_LINES} --no-pager --output=short-iso"
_LINUX: Mapping[str, str] = {
    **{f"{unit}.log": f"{_JOURNAL} --unit={unit}" for unit in ("kubelet", "containerd", "haproxy")},
    "kernel.log": f"{_JOURNAL} --dmesg",
    "daemons.log": (
        "for kept in /etc/hybridlab/daemons/*/; do "
        'log="/run/$(basename "$kept")/log"; [ -e "$log" ] || continue; '
        'echo "== $log"; tail -n 300 "$log"; done'
    ),
    "pods.log": (
        "for log in /var/log/pods/kube-system_*/*/*.log /var/log/pods/kube-flannel_*/*/*.log "
        "/var/log/pods/hybridlab-*/*/*.log; do "
        '[ -e "$log" ] || continue; echo "== $log"; tail -n 300 "$log"; done'
    ),
    "crictl.txt": "crictl pods; crictl ps --all; crictl images",
    "configuration.txt": (
        "for file in /var/lib/kubelet/config.yaml /var/lib/kubelet/kubeadm-flags.env "
        "/etc/containerd/config.toml /etc/cni/net.d/* /run/flannel/subnet.env; do "
        '[ -f "$file" ] || continue; echo "== $file"; cat "$file"; done; '
        "ls -l /opt/cni/bin"
    ),
    "units.txt": "systemctl --no-pager --failed; systemctl --no-pager status kubelet containerd",
}
"""File and the command whose output it is."""
_POWERSHELL: Mapping[str, str] = {
    **{
        f"{name}.log": (
            f"Get-Content -LiteralPath 'C:\\var\\log\\{name}\\{name}.log' -Tail {_LINES}"
        )
        for name in ("kubelet", "containerd", "kube-proxy", "flanneld")
    },
    "crictl.txt": "crictl.exe pods; crictl.exe ps --all; crictl.exe images",
    "hns.txt": (
        "hnsdiag.exe list networks; hnsdiag.exe list endpoints; hnsdiag.exe list loadbalancers; "
        "Get-HnsPolicyList | ConvertTo-Json -Depth 8"
    ),
    "configuration.txt": (
        "Get-ChildItem -LiteralPath 'C:\\etc\\cni\\net.d' -File | ForEach-Object -Process "
        "{ $_.FullName; Get-Content -LiteralPath $_.FullName }; "
        "Get-Content -LiteralPath 'C:\\var\\lib\\kubelet\\config.yaml'"
    ),
}
"""The same on Windows."""


@dataclass(frozen=True, slots=True)
class LinuxNode:
    """A Linux node that can be asked."""

    name: str
    shell: GuestShell


@dataclass(frozen=True, slots=True)
class WindowsNode:
    """A Windows node that can be asked, and the step that looks at it."""

    name: str
    shell: WindowsShell
    script: bytes
    """``observe.ps1``."""
    module: bytes
    """What it imports."""
    settings: Mapping[str, Any]
    """Of the step ``Observe``."""


Node = LinuxNode | WindowsNode


def gather(
    nodes: Iterable[Node],
    ask: Ask | None,
    deadline: Deadline,
    patience: int = 1,
) -> Iterator[Piece]:
    """Every piece: ``NODE/cluster/FILE``, and ``api/KIND.txt``.

    Never raises for what cannot be had: its piece is ``FILE.missing`` and says why. A node that
    does not answer is not asked again.

    Parameters
    ----------
    nodes
        All nodes of the cluster.
    ask
        The API; None where there is no kubeconfig yet.
    deadline
        For everything; each piece has at most :data:`EACH_SECONDS`, times ``patience``.
    patience
        8 where machines are emulated.

    """
    for node in nodes:
        yield from _asked(f"{node.name}/cluster", _pieces(node), deadline, patience)
    if ask is not None:
        yield from _asked("api", _api(ask), deadline, patience)


def logs(
    nodes: Iterable[Node], deadline: Deadline, patience: int = 1, since: str = ""
) -> Iterator[Piece]:
    """The end of what nodes have logged: ``NODE/FILE``, with the bounds of :func:`gather`.

    ``since`` is an option of journalctl's for what Linux nodes keep there, such as
    :data:`RECENTLY`.
    """
    for node in nodes:
        pieces = ((file, make) for file, make in _pieces(node, since) if file.endswith(_LOG))
        yield from _asked(node.name, pieces, deadline, patience)


_Make = Callable[[Deadline], str]


def _asked(
    where: str,
    pieces: Iterator[tuple[str, _Make]],
    deadline: Deadline,
    patience: int,
) -> Iterator[Piece]:
    answered = False
    for file, make in pieces:
        path = f"{where}/{file}"
        if not deadline.left():
            yield f"{path}.missing", b"there was no time left\n"
            continue
        try:
            text = make(Deadline(min(EACH_SECONDS * patience, deadline.left())))
        except LabError as error:
            yield f"{path}.missing", f"{error}\n".encode()
            if _is_nobody_there(error, first=not answered):
                return
            continue
        answered = True
        yield path, text.encode()


def _is_nobody_there(error: LabError, *, first: bool) -> bool:
    """Whether the next question would only wait, too; one that is slow alone may be the tool's."""
    if isinstance(error, StepError):
        return False
    return first or not isinstance(error, DeadlineError)


def _pieces(node: Node, since: str = "") -> Iterator[tuple[str, _Make]]:
    return _linux(node, since) if isinstance(node, LinuxNode) else _windows(node)


def _linux(node: LinuxNode, since: str) -> Iterator[tuple[str, _Make]]:
    yield "facts.json", lambda within: _json(linux.observe(node.shell, within))
    for file, line in _LINUX.items():
        yield file, _command(node.shell, line.replace(_JOURNAL, f"{_JOURNAL} {since}".rstrip()))


def _command(shell: GuestShell, line: str) -> _Make:
    def make(within: Deadline) -> str:
        done = shell.run(("sh", "-c", f"{line}\n"), within)
        return done.stdout + done.stderr

    return make


def _windows(node: WindowsNode) -> Iterator[tuple[str, _Make]]:
    yield (
        "facts.json",
        lambda within: _json(
            windows.observe(node.shell, node.script, node.module, node.settings, within)
        ),
    )
    for file, script in _POWERSHELL.items():
        yield file, _script(node.shell, script)


def _script(shell: WindowsShell, script: str) -> _Make:
    def make(within: Deadline) -> str:
        done = shell.powershell(script, within)
        return done.stdout + done.stderr

    return make


def _api(ask: Ask) -> Iterator[tuple[str, _Make]]:
    for kind, path in PATHS.items():
        yield f"{kind}.txt", _listing(ask, kind, path)


def _listing(ask: Ask, kind: str, path: str) -> _Make:
    return lambda within: table(kind, ask(path, within).get("items") or ())


def _json(facts: NodeFacts) -> str:
    return json.dumps(asdict(facts), indent=1) + "\n"
