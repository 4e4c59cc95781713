"""Find the pods that Kubernetes runs on this machine, by their processes' environment.

Every probe pod's processes have the run's token and the pod's name in their environment. This
works for every container runtime, without two of its commands, each of which takes a second to
start on an emulated processor. Other pods, and those whose containers have ended, are found by the
process that holds a pod's namespaces, whose host name is the pod's.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.machines.agents.protocol import ClusterPods
from lab.providers.netns import isolation
from lab.providers.netns.guard import call_guarded
from lab.providers.netns.holders import start_time
from lab.providers.netns.netlink import Link, Socket, list_default_routes, list_links
from lab.shells.shell import Completed
from lab.topology.observed import POD_VARIABLE, TOKEN_VARIABLE, PodLink

T = TypeVar("T")

_PROC = Path("/proc")
_OWN = "/proc/thread-self/ns/net"
_HOLDER = "pause\n"
_INSIDE = "eth0"
"""The name that container runtimes give a pod's network card."""


@dataclass(frozen=True, slots=True)
class PodProcess:
    """A process of a pod."""

    pod: str
    token: str
    """The run's; empty for the process that only holds a pod's namespaces."""
    pid: int

    @property
    def resolver(self) -> Path:
        """The pod's resolver file."""
        return _PROC / str(self.pid) / "root/etc/resolv.conf"

    @property
    def network(self) -> str:
        """The pod's network namespace."""
        return f"/proc/{self.pid}/ns/net"


def pod_processes() -> Iterator[PodProcess]:
    """A process of each pod that has its own network: the holder's, then one of the probe pod.

    For several pods with the same name and token, the newest.
    """
    own = os.stat(_OWN)  # noqa: PTH116  no Path needed
    youngest: dict[tuple[str, str], tuple[int, int]] = {}
    for entry in os.listdir(_PROC):  # noqa: PTH208  names are wanted, not paths
        if not entry.isdigit():
            continue
        with suppress(OSError):  # it has exited meanwhile
            process = _PROC / entry
            if (process / "comm").read_text() == _HOLDER:
                carried: tuple[str, str] | None = (_host_name(process), "")
            else:
                carried = _find_marks((process / "environ").read_bytes())
            if carried is None or os.path.samestat((process / "ns/net").stat(), own):
                continue
            since = start_time(int(entry))
            if since is not None and since >= youngest.get(carried, (0, 0))[0]:
                youngest[carried] = (since, int(entry))
    for (pod, token), (_, pid) in sorted(youngest.items()):
        yield PodProcess(pod, token, pid)


def _find_marks(environment: bytes) -> tuple[str, str] | None:
    if TOKEN_VARIABLE.encode() not in environment:
        return None
    pairs = (word.partition(b"=") for word in environment.split(b"\0"))
    carried = {name: value.decode(errors="replace") for name, _, value in pairs}
    pod, token = carried.get(POD_VARIABLE.encode()), carried.get(TOKEN_VARIABLE.encode())
    return (pod, token) if pod and token else None


def _host_name(process: Path) -> str:
    with (
        (process / "ns/uts").open("rb") as other,
        Path("/proc/thread-self/ns/uts").open("rb") as own,
    ):
        isolation.setns(other.fileno(), isolation.CLONE_NEWUTS)
        try:
            return socket.gethostname()
        finally:
            isolation.setns(own.fileno(), isolation.CLONE_NEWUTS)


class PodNamespaces:
    """The network namespaces of one run's pods and of the machine itself, kept open.

    With ``every``, also those of other pods, and of pods whose containers have ended.
    """

    def __init__(self, cluster: ClusterPods, *, every: bool = False) -> None:
        self._cluster = cluster
        self._tokens = {cluster.token, *([""] if every else ())}
        self._carriers: dict[str, PodProcess] = {}
        self._spaces: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._spaces[self._cluster.machine] = _open(_OWN)
        for process in pod_processes():
            if process.token in self._tokens and process.pod not in self._spaces:
                with suppress(OSError):  # it has exited meanwhile
                    self._spaces[process.pod] = _open(process.network)
                    self._carriers[process.pod] = process
        return self

    def __exit__(self, *_: object) -> None:
        isolation.setns(self._spaces[self._cluster.machine], isolation.CLONE_NEWNET)
        for space in self._spaces.values():
            os.close(space)

    def enter(self, name: str) -> None:
        """Enter the network namespace of a pod or of the machine.

        Raises BrokenError if this machine runs no such pod.
        """
        isolation.setns(self._space(name), isolation.CLONE_NEWNET)

    def resolver(self, name: str) -> Path:
        """The resolver file of a pod or of the machine."""
        if name == self._cluster.machine:
            return Path("/etc/resolv.conf")
        self._space(name)
        return self._carriers[name].resolver

    def _space(self, name: str) -> int:
        if name not in self._spaces:
            raise BrokenError(
                f"looking for pod '{name}' on machine '{self._cluster.machine}'",
                "none of its processes runs there",
                "kubectl describe the pod",
            )
        return self._spaces[name]

    def links(self) -> list[PodLink]:
        """Each pod's network link; a pod without a card is left out."""
        ports = {link.index: link.name for link in self._listed(self._cluster.machine, list_links)}
        links = []
        for name in self._carriers:
            card = next(
                (link for link in self._listed(name, list_links) if link.name == _INSIDE), None
            )
            if card is not None:
                links.append(self._plugged(name, card, ports.get(card.peer, "")))
        return links

    def _plugged(self, name: str, card: Link, port: str) -> PodLink:
        routes = self._listed(name, list_default_routes)
        gateway = next((route.via for route in routes if route.index == card.index), None)
        return PodLink(name, card.mac, port, card.mtu, gateway)

    def _listed(self, name: str, listing: Callable[[Socket], tuple[T, ...]]) -> tuple[T, ...]:
        self.enter(name)
        with Socket(name) as channel:
            return listing(channel)


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def run_here(action: str, command: Sequence[str], deadline: Deadline) -> Completed:
    """Run a command on this machine with empty standard input.

    Raises OSError if it cannot be started. Raises DeadlineError when it does not finish in time; it
    is killed.
    """
    try:
        done = subprocess.run(  # noqa: S603  the user's own command, or one of the lab's looks
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=deadline.left(),
        )
    except subprocess.TimeoutExpired:
        raise DeadlineError(action, f"not done within {deadline.seconds:g} s") from None
    out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    return Completed(done.returncode, out, err)


def find_pods() -> Mapping[str, PodMachine]:
    """The Kubernetes pods on this machine, by name."""
    return {process.pod: PodMachine(process) for process in pod_processes()}


@dataclass(frozen=True, slots=True)
class PodMachine:
    """A Kubernetes pod to run this machine's programs in, with the pod's network and DNS."""

    carrier: PodProcess

    def run(self, command: Sequence[str], deadline: Deadline) -> Completed:
        """Run a command with empty standard input.

        Raises DeadlineError when it does not finish in time; it is killed.
        """
        action = f"running '{command[0]}' in pod '{self.carrier.pod}'"
        return run_here(action, self._words(command), deadline)

    def attach(self, command: Sequence[str]) -> int:
        """Run a command on this terminal, or a shell if ``command`` is empty."""
        words = list(command) or [os.environ.get("SHELL") or "/bin/sh"]
        return call_guarded(self._words(words))

    def _words(self, command: Sequence[str]) -> list[str]:
        """Mount a copy of the pod's resolver file over this machine's, for this command only."""
        lay = (
            'copy=$(mktemp) && cat "$0" > "$copy" && '
            'mount --bind "$copy" "$(readlink -f /etc/resolv.conf)" && rm "$copy" && exec "$@"'
        )
        go_in = ["nsenter", f"--net={self.carrier.network}", *command]
        return [
            "unshare",
            "--mount",
            "--propagation=slave",
            "sh",
            "-c",
            lay,
            str(self.carrier.resolver),
            *go_in,
        ]
