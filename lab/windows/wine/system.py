"""Windows nodes on Wine, as system containers ask for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lab._deadline import Deadline
from lab.facts.node import NodeFacts
from lab.machines.bundle.manifest import Manifest
from lab.machines.cluster.cluster import Cluster, ClusterNode
from lab.machines.evidence import printed_by
from lab.machines.images.terms import Year
from lab.machines.nspawn.system import Bundle, ContainerSystem, Say
from lab.machines.system import DropMonitor, Ends, EvidencePiece, NodeJoining
from lab.providers.capture import KernelTrace
from lab.providers.provider import Diagnosis
from lab.scenario.terms import Os
from lab.shells.shell import Shell
from lab.topology.intent import Intent, MachineIntent
from lab.windows.wine import IMAGE

if TYPE_CHECKING:
    from lab.windows.nodes.bring_up import WindowsBringUp
    from lab.windows.shell import WindowsShell
    from lab.windows.wine.shell import WineShell

PAUSE = 1
"""Seconds before HNS' networks are made, which cuts nobody off here."""
LOOK_SECONDS = 0.5
"""Between two looks at a node, which cost less than over WinRM."""
LABELS: Mapping[str, str] = {"hybridlab/windows": "wine"}
"""What tells a Wine node from Windows in ``kubectl get nodes``."""

_FOREIGN_GATEWAY = {
    "upstream-vrrp": (
        "its pods' gateway is a Linux node's address, which the emulated HNS does not carry; "
        "network namespaces emulate it"
    ),
}


class WineSystem(ContainerSystem):
    """Kubernetes' Windows programs on Wine. Each method imports what it uses: few labs have one."""

    name: Os = "windows"
    memory_mib = 700
    inotify = 6
    disclaimer = "Windows nodes are Kubernetes' Windows programs on Wine, and HNS is emulated"

    def unfit(self, *, cluster: bool) -> str:
        """Windows programs are for one kind of processors, and come from a bundle."""
        from lab.windows.wine.host import unfit  # noqa: PLC0415

        return unfit() or (
            ""
            if cluster
            else "Wine nodes are nodes of a cluster: they have no lab with '--pods namespaces'"
        )

    def examine(self, cache: Path, has_root: Callable[[str], bool]) -> Iterator[Diagnosis]:
        """Processors, root, the image, the probes of its Wine, PowerShell and a compiler."""
        from lab.windows.wine.host import examine  # noqa: PLC0415

        return examine(cache, has_root)

    def unused(
        self, cache: Path, bundles: Collection[Manifest], held: Collection[Path]
    ) -> Iterator[Path]:
        """Templates, compiled stand-ins and prepared bundles."""
        from lab.windows.wine.host import unused  # noqa: PLC0415

        return unused(cache, bundles, held)

    def bundled(self, manifest: Manifest) -> Manifest:
        """Its images are made of Linux's."""
        from lab.windows.wine.bundle import wine_manifest  # noqa: PLC0415

        return wine_manifest(manifest, {})

    def join_refusals(
        self, cluster: Cluster, intent: Intent, node: ClusterNode, manifest: Manifest
    ) -> Collection[str]:
        """As on Windows, and a bundle without PowerShell, and a gateway that HNS does not reach."""
        from lab.windows.nodes.join_checks import join_refusals  # noqa: PLC0415
        from lab.windows.wine.bundle import lacks_powershell  # noqa: PLC0415

        lacking = [lacks_powershell(manifest), _FOREIGN_GATEWAY.get(cluster.topology, "")]
        refusals = join_refusals(cluster, intent, node, manifest)
        return (*refusals, *(f"{node.name}: {reason}" for reason in lacking if reason))

    def prepare(self, joining: NodeJoining) -> None:
        """As on Windows."""
        self._bring_up(joining, prepared=False).prepare()

    def join(self, joining: NodeJoining) -> None:
        """Run the steps of a Windows node's bring-up."""
        for run in self._bring_up(joining, prepared=True).steps().values():
            run()

    @staticmethod
    def _bring_up(joining: NodeJoining, *, prepared: bool) -> WindowsBringUp:
        from lab.windows.nodes.bring_up import Runner, WindowsBringUp  # noqa: PLC0415
        from lab.windows.nodes.join_plan import JoinPlan  # noqa: PLC0415
        from lab.windows.wine.bundle import wine_manifest  # noqa: PLC0415

        shell = cast("WineShell", joining.shell)
        manifest = wine_manifest(joining.manifest, shell.stand_ins())
        plan = JoinPlan(joining.cluster, joining.intent, joining.node, manifest, LABELS, PAUSE)
        return WindowsBringUp(
            plan,
            Runner(shell, joining.patience, LOOK_SECONDS),
            joining.credentials,
            joining.api,
            prepared,
            lambda: shell.in_place(plan.bundle_programs()),
        )

    def import_archive(
        self,
        archive: Path,
        shells: Mapping[str, Shell],
        deadline: Callable[[float], Deadline],
        say: Say,
    ) -> Collection[str]:
        """Make images for Windows into those of Wine nodes, and import them."""
        from lab.windows.wine.importing import import_archive  # noqa: PLC0415

        own = {name: cast("WineShell", shell).linux for name, shell in shells.items()}
        import_archive(archive, own, deadline, say)
        return tuple(own)

    def observe(self, shell: Shell, deadline: Deadline) -> NodeFacts:
        """Observe a node by the step ``observe``."""
        from lab.windows.evidence import observe_node  # noqa: PLC0415

        return observe_node(cast("WindowsShell", shell), deadline)

    def node_evidence(self, shell: Shell) -> Iterator[EvidencePiece]:
        """A node's facts, logs and configuration, through PowerShell; of stand-ins, from Linux."""
        from lab.windows.evidence import node_evidence  # noqa: PLC0415
        from lab.windows.wine.node import EVIDENCE  # noqa: PLC0415

        for file, make in node_evidence(cast("WindowsShell", shell)):
            yield file, _of_linux(shell, EVIDENCE[file]) if file in EVIDENCE else make

    def machine_evidence(self, shell: Shell) -> Iterator[EvidencePiece]:
        """What Linux says of the units, and HNS' questions and answers."""
        from lab.windows.wine.node import HNS  # noqa: PLC0415

        yield "journal.txt", _of_linux(shell, "journalctl --no-pager --boot")
        yield "hns-calls.jsonl", _of_linux(shell, f"cat {HNS}/calls.jsonl")

    def drop_monitor(
        self,
        machine: str,
        shell: Callable[[], Shell],
        directory: Path,
        deadline: Callable[[], Deadline],
    ) -> DropMonitor:
        """Nothing counts what it drops."""
        del shell, directory, deadline
        return _NoMonitor(machine)

    def root_image(self, image: str) -> str:
        """The same for every release of Windows."""
        del image
        return IMAGE

    def layer(self, cache: Path, root: Path, image: str, bundle: Bundle | None, say: Say) -> Path:
        """The template's tree for the release in the image's name."""
        from lab.windows.wine.bundle import powershell  # noqa: PLC0415
        from lab.windows.wine.template import template  # noqa: PLC0415

        return template(cache, root, _year(image), powershell(bundle), say)

    def prepare_bundle(
        self, cache: Path, bundle: Bundle, below: tuple[Path, Path], say: Say
    ) -> Path:
        """Drive D, and an image store with the image of Windows pods."""
        from lab.windows.wine.bundle import prepare  # noqa: PLC0415

        root, layer = below
        return prepare(cache, *bundle, root, layer.parent, say)

    def files(self, machine: MachineIntent) -> Mapping[str, bytes]:
        """Units and programs of the node's Linux."""
        from lab.windows.wine.node import files  # noqa: PLC0415

        return files(machine, _year(machine.hardware.image))

    def devices(self, machine: MachineIntent) -> Mapping[str, str]:
        """Those that HNS makes."""
        from lab.windows.wine.hns.network import BRIDGE, tunnel_name  # noqa: PLC0415

        bridge, tunnel = machine.bridge, machine.tunnel
        bridged = {bridge.name: BRIDGE} if bridge else {}
        return bridged | ({tunnel.name: tunnel_name(tunnel.vni)} if tunnel else {})

    def open_shell(self, name: str, linux: Shell) -> Shell:
        """PowerShell on Wine."""
        from lab.windows.wine.shell import WineShell  # noqa: PLC0415

        return WineShell(name, linux)

    def boot_lacks(self, linux: Shell, deadline: Deadline) -> str:
        """Which of the node's units does not run."""
        from lab.windows.wine.node import NAMES  # noqa: PLC0415

        done = linux.run(("systemctl", "is-active", *NAMES), deadline)
        states = dict(zip(NAMES, done.stdout.split(), strict=False))
        return ", ".join(
            f"{name} is {state}" for name, state in states.items() if state != "active"
        )


def _of_linux(shell: Shell, script: str) -> Callable[[Deadline], str]:
    linux = cast("WineShell", shell).linux
    return printed_by(partial(linux.run, ("sh", "-c", script)))


def _year(image: str) -> Year:
    from lab.windows.nodes.join_checks import year_of  # noqa: PLC0415

    return year_of(image) or "2022"


class _NoMonitor:
    def __init__(self, machine: str) -> None:
        self._machine = machine

    def begin(self, protocol: str, ends: Collection[Ends]) -> None:
        """Nothing to begin."""

    def end(self) -> KernelTrace:
        """Report that drops were not counted."""
        return KernelTrace(self._machine, trouble="a Wine node counts no drops")


WINE = WineSystem()
