"""Steps that make a Windows machine a cluster node: typed parameters and deadlines.

As in :mod:`lab.windows.images.image_steps`; the scripts are ``images/windows/cluster/<name>.ps1``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.windows.images.image_steps import ImageStep


@dataclass(frozen=True)
class ClusterStep(ImageStep):
    """A step of a cluster node."""


@dataclass(frozen=True)
class NodeSurvey(ClusterStep, name="node-survey", minutes=3):
    """Report what the node is and what an earlier membership left. Changes nothing."""

    address: str
    """The node's own address on the segment."""
    label: str
    """Label of the bundle medium."""
    paths: tuple[str, ...]
    """Paths to check; it reports those that exist."""


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A program on the medium, and its path on the node."""

    source: str
    """Path on the medium, ``bin/kubelet.exe``."""
    target: str
    sha256: str


@dataclass(frozen=True)
class NodeBundle(ClusterStep, name="node-bundle", minutes=10):
    """Copy programs from the bundle medium, which is found by its label."""

    label: str
    files: tuple[BundleFile, ...]
    stop: tuple[str, ...]
    """Services that keep the files open, in the order in which to stop them."""


@dataclass(frozen=True, slots=True)
class ImageFile:
    """A container image on the medium."""

    source: str
    name: str
    """The full name, as containerd lists it."""


@dataclass(frozen=True)
class NodeImages(ClusterStep, name="node-images", minutes=30):
    """Import container images from the bundle medium; those of Windows have some hundred MB."""

    label: str
    images: tuple[ImageFile, ...]


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


@dataclass(frozen=True)
class NodeFiles(ClusterStep, name="node-files", minutes=3):
    """Create folders, files and links."""

    folders: tuple[str, ...]
    files: tuple[NodeFile, ...]
    links: tuple[NodeLink, ...] = ()
    alone: tuple[str, ...] = ()
    """Folders from which other files are removed, because the runtime takes the first it finds."""


@dataclass(frozen=True)
class NodeService(ClusterStep, name="node-service", minutes=5):
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


@dataclass(frozen=True)
class NodeJoin(ClusterStep, name="node-join", minutes=20):
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


@dataclass(frozen=True)
class NodeLeave(ClusterStep, name="node-leave", minutes=5):
    """Remove files, services and tasks of an earlier membership."""

    stop: tuple[str, ...]
    services: tuple[str, ...]
    """Services to remove."""
    tasks: tuple[str, ...]
    """The lab's scheduled tasks, without ``hybridlab-``."""
    paths: tuple[str, ...]
    programs: tuple[str, ...]
    """Programs that the tasks have started and that may outlive them: ``flanneld.exe``."""


@dataclass(frozen=True)
class HnsNetwork(ClusterStep, name="hns-network", minutes=3):
    """Create HNS networks in a scheduled task, because the link drops for seconds meanwhile."""

    address: str
    """The node's own address; the networks use its adapter."""
    networks: tuple[str, ...]
    """Each network's JSON, without the adapter."""
    endpoint: str | None
    """JSON of the node's own endpoint on the last network."""
    attachment: str
    settle_seconds: int
    """Seconds between the step's answer and the creation of the first network."""


@dataclass(frozen=True)
class HnsState(ClusterStep, name="hns-state", minutes=2):
    """Report the progress of the HNS networks. Changes nothing."""

    address: str
    files: tuple[str, ...]
    """Files to check; it reports those that exist."""
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class NodeTask(ClusterStep, name="node-task", minutes=3):
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


@dataclass(frozen=True)
class SourceVip(ClusterStep, name="source-vip", minutes=3):
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


@dataclass(frozen=True, slots=True)
class NodeRoute:
    """A route of the host."""

    destination: str
    via: str


@dataclass(frozen=True)
class NodeRoutes(ClusterStep, name="node-routes", minutes=3):
    """Make the lab's AddRoutes exactly these; other routes are left alone."""

    address: str
    """The node's own address; the routes use its interface."""
    routes: tuple[NodeRoute, ...]


@dataclass(frozen=True)
class NodeHealth(ClusterStep, name="node-health", minutes=2):
    """Report the services' state and whether they survive a restart. Changes nothing."""

    services: tuple[str, ...]
    tasks: tuple[str, ...]
