"""Steps of a Windows node on its way into a cluster: their typed parameters and deadlines.

As in :mod:`lab.imaging.windows.steps`; the scripts are ``images/windows/cluster/<name>.ps1``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, get_args

from lab.imaging.windows.steps import ImageStep

_MINUTE = 60


@dataclass(frozen=True, slots=True)
class NodeSurvey:
    """What the node is, and what of an earlier life is on it. Changes nothing."""

    address: str
    """Its own on the segment."""
    label: str
    """Of the bundle medium."""
    paths: tuple[str, ...]
    """Of which it says the ones that are there."""

    name: ClassVar[str] = "node-survey"
    deadline_s: ClassVar[int] = 3 * _MINUTE


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A program on the medium, and its place on the node."""

    source: str
    """``bin/kubelet.exe``."""
    target: str
    sha256: str


@dataclass(frozen=True, slots=True)
class NodeBundle:
    """Programs from the bundle medium, which is found by its label."""

    label: str
    files: tuple[BundleFile, ...]
    stop: tuple[str, ...]
    """Services that hold them open, in the order in which they are stopped."""

    name: ClassVar[str] = "node-bundle"
    deadline_s: ClassVar[int] = 10 * _MINUTE


@dataclass(frozen=True, slots=True)
class ImageFile:
    """A container image on the medium."""

    source: str
    name: str
    """In full, as containerd lists it."""


@dataclass(frozen=True, slots=True)
class NodeImages:
    """Container images from the bundle medium, into containerd."""

    label: str
    images: tuple[ImageFile, ...]

    name: ClassVar[str] = "node-images"
    deadline_s: ClassVar[int] = 30 * _MINUTE
    """Images of Windows are some hundred MB, and are unpacked."""


@dataclass(frozen=True, slots=True)
class NodeFile:
    """A file of text, ASCII."""

    path: str
    text: str = field(repr=False)
    secret: bool = False
    """Whether nobody but Administrators and SYSTEM may read it."""


@dataclass(frozen=True, slots=True)
class NodeLink:
    """A symbolic link to a folder."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """Folders, files and links of a node."""

    folders: tuple[str, ...]
    files: tuple[NodeFile, ...]
    links: tuple[NodeLink, ...] = ()
    alone: tuple[str, ...] = ()
    """Folders that hold no other file than ours: the runtime takes the first that it finds."""

    name: ClassVar[str] = "node-files"
    deadline_s: ClassVar[int] = 3 * _MINUTE


@dataclass(frozen=True, slots=True)
class NodeService:
    """A native Windows service."""

    service: str
    command: str
    depends: tuple[str, ...]
    environment: tuple[str, ...]
    """``NAME=value``."""
    flags_file: str | None
    """kubeadm's, whose flags are put behind ours where ours do not have them."""
    watched: tuple[str, ...]
    """Files whose change makes it restart."""
    start: bool
    """False for one that somebody else starts later."""
    clear_policies: bool
    """Whether HNS' policy lists go before it starts (kube-proxy does not take over old ones)."""
    seconds: int = 90
    """How long it may take to run."""

    name: ClassVar[str] = "node-service"
    deadline_s: ClassVar[int] = 5 * _MINUTE


@dataclass(frozen=True, slots=True)
class NodeJoin:
    """``kubeadm join``, unless the node has joined. Secret."""

    document: str = field(repr=False)
    """Its JoinConfiguration."""
    kubeadm: str
    joined: str
    """The file that is there once it has: the kubelet's own kubeconfig."""
    stale: tuple[str, ...]
    """What an attempt that was cut off leaves, and kubeadm then complains of."""
    service: str
    """The kubelet's, which holds the port that kubeadm wants free."""

    name: ClassVar[str] = "node-join"
    deadline_s: ClassVar[int] = 20 * _MINUTE


@dataclass(frozen=True, slots=True)
class NodeLeave:
    """What an earlier life left in files, services and tasks goes."""

    stop: tuple[str, ...]
    services: tuple[str, ...]
    """Services that are removed."""
    tasks: tuple[str, ...]
    """The lab's scheduled tasks, without ``hybridlab-``."""
    paths: tuple[str, ...]
    programs: tuple[str, ...]
    """What the tasks have started, which may outlive them: ``flanneld.exe``."""

    name: ClassVar[str] = "node-leave"
    deadline_s: ClassVar[int] = 5 * _MINUTE


@dataclass(frozen=True, slots=True)
class HnsNetwork:
    """HNS networks are made by a task of their own: the link drops for seconds meanwhile."""

    address: str
    """The node's own: its adapter is the networks'."""
    networks: tuple[str, ...]
    """JSON of each, without the adapter."""
    endpoint: str | None
    """JSON of the node's own endpoint on the last of them."""
    attachment: str
    settle_seconds: int = 3
    """Between the answer of the step and the first network."""

    name: ClassVar[str] = "hns-network"
    deadline_s: ClassVar[int] = 3 * _MINUTE


@dataclass(frozen=True, slots=True)
class HnsState:
    """How far that is. Changes nothing."""

    address: str
    files: tuple[str, ...]
    """Of which it says the ones that are there."""
    tasks: tuple[str, ...]

    name: ClassVar[str] = "hns-state"
    deadline_s: ClassVar[int] = 2 * _MINUTE


@dataclass(frozen=True, slots=True)
class NodeTask:
    """A program that the scheduler starts with the machine, and now."""

    task: str
    script: str
    """Path on the node."""
    settings: str
    """Path of the script's settings."""
    programs: tuple[str, ...]
    """What it starts, which ends with it."""
    watched: tuple[str, ...]
    """Files whose change makes it restart."""

    name: ClassVar[str] = "node-task"
    deadline_s: ClassVar[int] = 3 * _MINUTE


@dataclass(frozen=True, slots=True)
class SourceVip:
    """An address that no pod gets: one that host-local reserves, or that of an endpoint."""

    plugin: str
    request: str
    """host-local's configuration."""
    request_file: str
    answer_file: str
    container: str
    """In whose name it is reserved."""
    endpoint: str | None = None
    """Of HNS, to be asked instead."""

    name: ClassVar[str] = "source-vip"
    deadline_s: ClassVar[int] = 3 * _MINUTE


@dataclass(frozen=True, slots=True)
class NodeRoute:
    """A route of the host."""

    destination: str
    via: str


@dataclass(frozen=True, slots=True)
class NodeRoutes:
    """AddRoutes: our routes are exactly these; all others stay as they are."""

    address: str
    """The node's own: its interface is the routes'."""
    routes: tuple[NodeRoute, ...]

    name: ClassVar[str] = "node-routes"
    deadline_s: ClassVar[int] = 3 * _MINUTE


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """How its services are, and whether they will be there after a restart. Changes nothing."""

    services: tuple[str, ...]
    tasks: tuple[str, ...]

    name: ClassVar[str] = "node-health"
    deadline_s: ClassVar[int] = 2 * _MINUTE


ClusterStep = (
    NodeSurvey
    | NodeBundle
    | NodeImages
    | NodeFiles
    | NodeService
    | NodeJoin
    | NodeLeave
    | HnsNetwork
    | HnsState
    | NodeTask
    | SourceVip
    | NodeRoutes
    | NodeHealth
)
STEPS: tuple[type[ClusterStep], ...] = get_args(ClusterStep)
"""All there are."""


def settings(step: ClusterStep | ImageStep) -> dict[str, Any]:
    """The step's settings, as JSON holds them and its script reads them."""
    return asdict(step)
