"""Machines of other systems than Linux without a cluster: what cannot be probed on them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from lab._errors import PreflightError, UsageError
from lab.providers.provider import Outcome, Probe
from lab.topology.intent import Intent, MachineIntent
from lab.topology.routing import bare

WITHOUT = "'--only linux' (make: ONLY=linux) leaves out Windows nodes"
WHY = f"pods on Windows machines need Kubernetes, which this lab does not have; {WITHOUT}"


def require_images(intent: Intent, check: Callable[[str], None]) -> None:
    """Check that every Windows image exists or can be built.

    ``check``: raises PreflightError for an image that does not exist and cannot be built.

    Raises PreflightError with what to get, where to put it, and how to continue without it.
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
                f"node '{node}' needs image '{image}': {error.happened}",
                f"{error.hint}; or {WITHOUT}",
            ) from error


def refuse_pod(intent: Intent, name: str) -> None:
    """Raise UsageError if ``name`` is a pod on a Windows machine."""
    machine, pod = intent.places().get(name, (None, None))
    if machine and pod and machine.os == "windows":
        raise UsageError(
            f"looking for pod '{name}' on '{machine.name}'",
            WHY,
            f"the machine itself can be used: '{machine.name}'",
        )


def refuse_probes(intent: Intent, probes: Sequence[Probe]) -> Mapping[int, Outcome]:
    """Error outcomes for probes from or to a Windows machine. Pure."""
    sources = {
        name: machine.name
        for name, (machine, _) in intent.places().items()
        if machine.os == "windows"
    }
    hosts = {
        bare(address): machine.name
        for machine in intent.machines
        if machine.os == "windows"
        for address in (*_own(machine), *(pod.address for pod in machine.pods))
    }
    services = dict(_services(intent, sources))
    outcomes: dict[int, Outcome] = {}
    for probe in probes:
        machine = (
            sources.get(probe.source)
            or services.get((probe.address, probe.port))
            or hosts.get(probe.address)
        )
        if machine is not None:
            detail = f"cannot probe from or to '{machine}': {WHY}"
            outcomes[probe.key] = Outcome.failed(probe.key, "error", detail)
    return outcomes


def _own(machine: MachineIntent) -> list[str]:
    return [address for card in machine.interfaces for address in card.addresses]


def _services(intent: Intent, home: Mapping[str, str]) -> Iterator[tuple[tuple[str, int], str]]:
    """Address and port of each Service with a backend on a Windows machine, with the machine."""
    own = [bare(address) for machine in intent.machines for address in _own(machine)]
    for machine in intent.machines:
        for service in machine.translation.services if machine.translation else ():
            behind = next(
                (home[backend.pod] for backend in service.backends if backend.pod in home), None
            )
            if behind is None:
                continue
            yield from (((service.address, port.port), behind) for port in service.ports)
            for port in service.node_ports():
                yield from (((address, port), behind) for address in own)
