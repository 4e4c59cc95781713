"""Steps that make a Windows machine a cluster node: typed parameters and deadlines.

As in :mod:`lab.imaging.windows.steps`; the scripts are ``images/windows/cluster/<name>.ps1``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from lab.imaging.windows.steps import ImageStep

_MINUTE = 60


@dataclass(frozen=True, slots=True)
class ClusterStep(ImageStep):
    """A step of a cluster node."""


@dataclass(frozen=True, slots=True)
class NodeSurvey(ClusterStep):
    """Report what the node is and what an earlier membership left. Changes nothing."""

    address: str
    """The node's own address on the segment."""
    label: str
    """Label of the bundle medium."""
    paths: tuple[str, ...]
    """Paths to check; it reports those that exist."""

    name: ClassVar[str] = "node-survey"
    deadline_s: ClassVar[int] = 3 * _MINUTE


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A program on the medium, and its path on the node."""

    source: str
    """Path on the medium, ``bin/kubelet.exe``."""
    target: str
    sha256: str


@dataclass(frozen=True, slots=True)
class NodeBundle(ClusterStep):
    """Copy programs from the bundle medium, which is found by its label."""

    label: str
    files: tuple[BundleFile, ...]
    stop: tuple[str, ...]
    """Services that keep the files open, in the order in which to stop them."""

    name: ClassVar[str] = "node-bundle"
    deadline_s: ClassVar[int] = 10 * _MINUTE


@dataclass(frozen=True, slots=True)
class ImageFile:
    """A container image on the medium."""

    source: str
    name: str
    """The full name, as containerd lists it."""


@dataclass(frozen=True, slots=True)
class NodeImages(ClusterStep):
    """Import container images from the bundle medium into containerd."""

    label: str
    images: tuple[ImageFile, ...]

    name: ClassVar[str] = "node-images"
    deadline_s: ClassVar[int] = 30 * _MINUTE
    """Windows images have some hundred MB and are unpacked."""


@dataclass(frozen=True, slots=True)
class NodeFile:
    """A text file, ASCII."""

    path: str
    text: str = field(repr=False)
    secret: bool = False
    """Whether only Administrators and SYSTEM may read it."""


@dataclass(frozen=True, slots=True)
class NodeLink:
    """A symbolic link to a folder."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class NodeFiles(ClusterStep):
    """Create folders, files and links."""

    folders: tuple[str, ...]
    files: tuple[NodeFile, ...]
    links: tuple[NodeLink, ...] = ()
    alone: tuple[str, ...] = ()
    """Folders from which other files are removed, because the runtime takes the first it finds."""

    name: ClassVar[str] = "node-files"
    deadline_s: ClassVar[int] = 3 * _MINUTE


@dataclass(frozen=True, slots=True)
class NodeService(ClusterStep):
    """Create or change a native Windows service."""

    service: str
    command: str
    depends: tuple[str, ...]
    environment: tuple[str, ...]
    """Each ``NAME=value``."""
    flags_file: str | None
    """kubeadm's file; its flags are appended unless ``command`` has them."""
    watched: tuple[str, ...]
    """Files that restart the service when they change."""
    start: bool
    """False for a service that something else starts later."""
    clear_policies: bool
    """Whether to delete HNS policy lists before it starts (kube-proxy does not take over old
    ones)."""
    seconds: int = 90
    """Limit for reaching the state "running"."""

    name: ClassVar[str] = "node-service"
    deadline_s: ClassVar[int] = 5 * _MINUTE


@dataclass(frozen=True, slots=True)
class NodeJoin(ClusterStep):
    """Run ``kubeadm join`` unless the node has joined. Secret."""

    document: str = field(repr=False)
    """The JoinConfiguration."""
    kubeadm: str
    joined: str
    """The kubelet's own kubeconfig, which exists once the node has joined."""
    stale: tuple[str, ...]
    """Files that an interrupted attempt leaves and kubeadm refuses."""
    service: str
    """The kubelet's service, which holds the port that kubeadm needs free."""

    name: ClassVar[str] = "node-join"
    deadline_s: ClassVar[int] = 20 * _MINUTE


@dataclass(frozen=True, slots=True)
class NodeLeave(ClusterStep):
    """Remove files, services and tasks of an earlier membership."""

    stop: tuple[str, ...]
    services: tuple[str, ...]
    """Services to remove."""
    tasks: tuple[str, ...]
    """The lab's scheduled tasks, without ``hybridlab-``."""
    paths: tuple[str, ...]
    programs: tuple[str, ...]
    """Programs that the tasks have started and that may outlive them: ``flanneld.exe``."""

    name: ClassVar[str] = "node-leave"
    deadline_s: ClassVar[int] = 5 * _MINUTE


@dataclass(frozen=True, slots=True)
class HnsNetwork(ClusterStep):
    """Create HNS networks in a scheduled task, because the link drops for seconds meanwhile."""

    address: str
    """The node's own address; the networks use its adapter."""
    networks: tuple[str, ...]
    """Each network's JSON, without the adapter."""
    endpoint: str | None
    """JSON of the node's own endpoint on the last network."""
    attachment: str
    settle_seconds: int = 3
    """Seconds between the step's answer and the creation of the first network."""

    name: ClassVar[str] = "hns-network"
    deadline_s: ClassVar[int] = 3 * _MINUTE


@dataclass(frozen=True, slots=True)
class HnsState(ClusterStep):
    """Report the progress of the HNS networks. Changes nothing."""

    address: str
    files: tuple[str, ...]
    """Files to check; it reports those that exist."""
    tasks: tuple[str, ...]

    name: ClassVar[str] = "hns-state"
    deadline_s: ClassVar[int] = 2 * _MINUTE


@dataclass(frozen=True, slots=True)
class NodeTask(ClusterStep):
    """Let the scheduler run a program now and at every start of the machine."""

    task: str
    script: str
    """Path of the script on the node."""
    settings: str
    """Path of the script's settings."""
    programs: tuple[str, ...]
    """Programs that it starts; they end with it."""
    watched: tuple[str, ...]
    """Files that restart the task when they change."""

    name: ClassVar[str] = "node-task"
    deadline_s: ClassVar[int] = 3 * _MINUTE


@dataclass(frozen=True, slots=True)
class SourceVip(ClusterStep):
    """An address that no pod gets: reserved through host-local, or that of an endpoint."""

    plugin: str
    request: str
    """host-local's configuration."""
    request_file: str
    answer_file: str
    container: str
    """The container name under which it is reserved."""
    endpoint: str | None = None
    """HNS endpoint whose address is used instead."""

    name: ClassVar[str] = "source-vip"
    deadline_s: ClassVar[int] = 3 * _MINUTE


@dataclass(frozen=True, slots=True)
class NodeRoute:
    """A route of the host."""

    destination: str
    via: str


@dataclass(frozen=True, slots=True)
class NodeRoutes(ClusterStep):
    """Make the lab's AddRoutes exactly these; other routes are left alone."""

    address: str
    """The node's own address; the routes use its interface."""
    routes: tuple[NodeRoute, ...]

    name: ClassVar[str] = "node-routes"
    deadline_s: ClassVar[int] = 3 * _MINUTE


@dataclass(frozen=True, slots=True)
class NodeHealth(ClusterStep):
    """Report the services' state and whether they survive a restart. Changes nothing."""

    services: tuple[str, ...]
    tasks: tuple[str, ...]

    name: ClassVar[str] = "node-health"
    deadline_s: ClassVar[int] = 2 * _MINUTE
