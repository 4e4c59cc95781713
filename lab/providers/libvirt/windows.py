"""Windows machines of a lab: what can be asked of them here, and what cannot yet.

They come up, and take commands. The network of their pods is Kubernetes' work (HNS, kube-proxy,
a CNI), and no Kubernetes is brought up here yet: what would need such a pod is refused in words.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab._deadline import Deadline
from lab._errors import PreflightError, UsageError
from lab.providers.provider import Outcome, Probe
from lab.remote.shell import Completed, Shell
from lab.topology.intent import Intent, MachineIntent

WITHOUT = "'--only linux' (make: ONLY=linux) goes on without Windows nodes"
WHY = (
    "pods and their network on Windows machines are Kubernetes' work, which is not brought up "
    f"here yet; {WITHOUT}"
)


@dataclass(frozen=True, slots=True)
class WindowsMachine:
    """A node that runs Windows, as a place to run commands in."""

    name: str
    lab: str
    shell: Shell

    def run(self, command: Sequence[str], deadline: Deadline) -> Completed:
        """Run a command to its end; see :class:`lab.providers.provider.Machine`."""
        return self.shell.run(command, deadline)

    def attach(self, command: Sequence[str]) -> int:
        """Run a command with this terminal as its own; an empty one is PowerShell."""
        return self.shell.attach(command)

    def command_line(self, command: Sequence[str]) -> str:
        """The shell line that does the same by hand."""
        return shlex.join(("lab", "ssh", self.lab, self.name, "--", *command))


def require(intent: Intent, check: Callable[[str], None]) -> None:
    """See that the installation media of every Windows image are there, or the image is.

    Parameters
    ----------
    check
        Raises PreflightError for an image that neither is there nor can be built.

    Raises
    ------
    PreflightError
        Saying what to get, where to put it, and how to go on without.

    """
    wanted = {
        machine.hardware.image: machine.name
        for machine in reversed(intent.machines)
        if machine.os == "windows"
    }
    for image, node in wanted.items():
        try:
            check(image)
        except PreflightError as error:
            raise PreflightError(
                f"checking the images of scenario '{intent.scenario}'",
                f"node '{node}' wants image '{image}': {error.happened}",
                f"{error.hint}; or {WITHOUT}",
            ) from error


def refuse_pod(intent: Intent, name: str) -> None:
    """See that it is no pod on a Windows machine.

    Raises
    ------
    UsageError
        When it is.

    """
    for machine in _windows(intent):
        if name in {pod.name for pod in machine.pods}:
            raise UsageError(
                f"looking for pod '{name}' on '{machine.name}'",
                WHY,
                f"the machine itself is there: '{machine.name}'",
            )


def unprobeable(intent: Intent, probes: Sequence[Probe]) -> Mapping[int, Outcome]:
    """The probes that start or would end on a Windows machine, each as an error. Pure."""
    sources = {
        name: machine.name
        for machine in _windows(intent)
        for name in (machine.name, *(pod.name for pod in machine.pods))
    }
    hosts = dict(_addresses(intent))
    services = dict(_services(intent))
    found: dict[int, Outcome] = {}
    for probe in probes:
        machine = (
            sources.get(probe.source)
            or services.get((probe.address, probe.port))
            or hosts.get(probe.address)
        )
        if machine is not None:
            found[probe.key] = _barred(probe, machine)
    return found


def _barred(probe: Probe, machine: str) -> Outcome:
    detail = f"cannot probe from or to '{machine}': {WHY}"
    return Outcome(probe.key, "error", detail, None, (), None, 0.0)


def _windows(intent: Intent) -> Iterator[MachineIntent]:
    return (machine for machine in intent.machines if machine.os == "windows")


def _addresses(intent: Intent) -> Iterator[tuple[str, str]]:
    """Address of a Windows machine or of its pod, and the machine."""
    for machine in _windows(intent):
        given = [address for card in machine.interfaces for address in card.addresses]
        for address in (*given, *(pod.address for pod in machine.pods)):
            yield address.partition("/")[0], machine.name


def _services(intent: Intent) -> Iterator[tuple[tuple[str, int], str]]:
    """Address and port of a Service with a backend on a Windows machine, and the machine."""
    home = {pod.name: machine.name for machine in _windows(intent) for pod in machine.pods}
    own = [
        address.partition("/")[0]
        for machine in intent.machines
        for card in machine.interfaces
        for address in card.addresses
    ]
    for machine in intent.machines:
        for service in machine.translation.services if machine.translation else ():
            behind = next((home[one.pod] for one in service.backends if one.pod in home), None)
            if behind is None:
                continue
            yield from (((service.address, port.port), behind) for port in service.ports)
            for port in service.node_ports():
                yield from (((address, port), behind) for address in own)
