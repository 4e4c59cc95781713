"""Windows as a system of nodes: what providers of machines ask for by its name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lab._deadline import Deadline
from lab.facts.node import NodeFacts
from lab.machines.bundle.manifest import Manifest
from lab.machines.cluster.cluster import Cluster, ClusterNode
from lab.machines.images.inputs import ISO, OPENSSH, VIRTIO, MediaSystem
from lab.machines.images.job import BuildSystem
from lab.machines.libvirt.system import GuestSystem
from lab.machines.system import DropMonitor, EvidencePiece, NodeJoining
from lab.scenario.terms import Os
from lab.shells.shell import Shell, WindowsReach
from lab.topology.intent import Intent

if TYPE_CHECKING:
    import libvirt

    from lab.machines.images.golden import Built
    from lab.machines.images.job import BuildJob
    from lab.machines.images.recipe import Recipe
    from lab.machines.libvirt.documents import VirtualMachine
    from lab.machines.libvirt.host import Host
    from lab.machines.libvirt.machines import MachineRecipe
    from lab.windows.nodes.bring_up import WindowsBringUp
    from lab.windows.shell import WindowsShell


class WindowsSystem(GuestSystem, BuildSystem, MediaSystem):
    """Windows Server in virtual machines. Each method imports what it uses: few labs have one."""

    name: Os = "windows"
    first_boot_seconds = {True: 2100.0, False: 21_000.0}  # noqa: RUF012  frozen by convention

    def join_refusals(
        self, cluster: Cluster, intent: Intent, node: ClusterNode, manifest: Manifest
    ) -> Collection[str]:
        """Why a node cannot join, by versions, flags and the bundle's contents."""
        from lab.windows.nodes.join_checks import join_refusals  # noqa: PLC0415

        return join_refusals(cluster, intent, node, manifest)

    def prepare(self, joining: NodeJoining) -> None:
        """Programs, container runtime and images."""
        self._bring_up(joining, prepared=False).prepare()

    def join(self, joining: NodeJoining) -> None:
        """Run the steps of a node's bring-up over its shell."""
        for run in self._bring_up(joining, prepared=True).steps().values():
            run()

    @staticmethod
    def _bring_up(joining: NodeJoining, *, prepared: bool) -> WindowsBringUp:
        from lab.windows.nodes.bring_up import Runner, WindowsBringUp  # noqa: PLC0415
        from lab.windows.nodes.join_plan import JoinPlan  # noqa: PLC0415

        return WindowsBringUp(
            JoinPlan(joining.cluster, joining.intent, joining.node, joining.manifest),
            Runner(_windows(joining.shell), joining.patience),
            joining.credentials,
            joining.api,
            prepared,
        )

    def observe(self, shell: Shell, deadline: Deadline) -> NodeFacts:
        """Observe a node by the step ``observe``."""
        from lab.windows.evidence import observe_node  # noqa: PLC0415

        return observe_node(_windows(shell), deadline)

    def node_evidence(self, shell: Shell) -> Iterator[EvidencePiece]:
        """A node's facts, logs and configuration, through PowerShell."""
        from lab.windows.evidence import node_evidence  # noqa: PLC0415

        return node_evidence(_windows(shell))

    def machine_evidence(self, shell: Shell) -> Iterator[EvidencePiece]:
        """System information, services, event logs, Setup's logs."""
        from lab.windows.evidence import machine_evidence  # noqa: PLC0415

        return machine_evidence(_windows(shell))

    def drop_monitor(
        self,
        machine: str,
        shell: Callable[[], Shell],
        directory: Path,
        deadline: Callable[[], Deadline],
    ) -> DropMonitor:
        """Windows' Packet Monitor."""
        from lab.windows.pktmon import PacketMonitor  # noqa: PLC0415

        return PacketMonitor(machine, lambda: _windows(shell()), directory, deadline)

    def build_image(self, job: BuildJob) -> Built:
        """Install Windows from Microsoft's medium, unattended."""
        from lab.windows.images.build import build  # noqa: PLC0415

        return build(job)

    def check_input(self, recipe: Recipe, name: str, path: Path) -> None:
        """Read the structure of Microsoft's media, the drivers' medium or OpenSSH's archive."""
        from lab.windows.images import medium  # noqa: PLC0415

        assert recipe.windows is not None, "asked for recipes of this system"
        wanted = recipe.windows.wanted
        if name == ISO:
            medium.choose(medium.read(path), wanted)
        elif name == VIRTIO:
            medium.check_drivers(path, wanted.release)
        elif name == OPENSSH:
            medium.check_openssh(path)

    def open_shell(self, reach: WindowsReach) -> Shell:
        """Commands over WinRM, files over SSH."""
        from lab.windows.shell import WindowsShell  # noqa: PLC0415

        return WindowsShell(reach)

    def clone_machine(
        self, host: Host, recipe: MachineRecipe, pool: libvirt.virStoragePool, disk: str
    ) -> VirtualMachine:
        """Write the clone's seed and delete old pins."""
        from lab.windows.libvirt import clone_machine  # noqa: PLC0415

        return clone_machine(host, recipe, pool, disk)

    def wait_for_boot(
        self,
        host: Host,
        recipe: MachineRecipe,
        console: Callable[[], str],
        shell: Callable[[], Shell],
    ) -> None:
        """Pin the keys that the clone prints on its console, then wait for its shell."""
        from lab.windows.libvirt import pin_keys, wait_for_shell  # noqa: PLC0415

        pin_keys(host, recipe, console)
        wait_for_shell(recipe, shell())

    def set_clock(self, shell: Shell) -> None:
        """Set the clock of a guest that stopped while it was suspended."""
        from lab.windows.libvirt import set_clock  # noqa: PLC0415

        set_clock(_windows(shell))


def _windows(shell: Shell) -> WindowsShell:
    return cast("WindowsShell", shell)  # what open_shell returned


WINDOWS = WindowsSystem()
