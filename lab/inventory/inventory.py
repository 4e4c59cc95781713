"""The inventory of ``lab.toml`` as frozen pydantic models.

The models check every value by itself; :mod:`lab.inventory.reader` checks values that depend on
each other. While the rest of a file is checked, the first example of a required field replaces a
broken value.

Memory is in MiB, disk in GiB, times in seconds; paths and URLs are text or ``Path``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from lab.inventory import uri, values
from lab.scenario import values as common
from lab.scenario.values import MAX_MTU, Section, Unwritten, annotate

Acceleration = Literal["auto", "kvm", "tcg"]
"""``auto``: KVM if a tiny guest was started with it successfully, else TCG."""

STORAGE = "/var/lib/libvirt/images"
"""The image directory of libvirt on Debian and Fedora, which QEMU may read."""
MANAGEMENT = IPv4Network("10.201.0.0/16")
UPLINK_MTU = 1500
MIN_MTU = 1280
"""The minimum for IPv6 (RFC 8200), and for pods with an MTU of 1230 over VXLAN."""
MAX_VCPUS = 4096
MAX_BOOTS = 1024


def _address(value: object) -> str:
    return str(common.address(value))


def _path(value: object) -> Path:
    return Path(values.path(value))


def _uri(value: object) -> str:
    return uri.check(common.text(value).strip())


Word = Annotated[str, *annotate(values.word, None, "team-network")]
Expiry = Annotated[float, *annotate(values.expiry, values.EXPIRY, "2d")]
Range = Annotated[IPv4Network, *annotate(values.management, common.CIDR, str(MANAGEMENT))]
Absolute = Annotated[str, *annotate(values.absolute, None, STORAGE)]
File = Annotated[Path, *annotate(_path, None, "windows-server-2022.iso")]
Url = Annotated[str, *annotate(values.url, None, "https://images.example/image.qcow2")]
Proxy = Annotated[str, *annotate(values.proxy, None, "http://proxy.example:3128")]
Digest = Annotated[str, *annotate(values.sha256, values.SHA256, "0" * 64)]
Variable = Annotated[str, *annotate(values.variable, values.VARIABLE, "WINDOWS_ADMIN_PASSWORD")]
Tag = Annotated[str, *annotate(values.tag, None, "ssd")]
UriText = Annotated[str, *annotate(_uri, None, uri.LOCAL)]
Address = Annotated[str, *annotate(_address, common.ADDRESS, "192.0.2.10")]
Memory = Annotated[int, *annotate(common.memory, common.MEMORY, "64GiB")]
Disk = Annotated[int, *annotate(common.disk, common.DISK, "500GiB")]


class Management(Section):
    """The range by which this machine reaches the machines of its labs."""

    cidr: Range = Field(default=MANAGEMENT, description="Each lab takes a /24 of it.")


class Storage(Section):
    """Where hypervisors keep disks."""

    path: Absolute = Field(
        default=STORAGE,
        description=("Directory on each hypervisor that has no 'storage' of its own."),
    )


class Hypervisor(Section):
    """One libvirt host."""

    name: Unwritten[str] = ""
    uri: UriText = Field(description="libvirt URI of the hypervisor.")
    vcpus: int | None = Field(
        default=None,
        ge=1,
        le=MAX_VCPUS,
        description="Limit on virtual CPUs of all labs together.",
        examples=[16],
    )
    """None for eight times its CPU threads."""
    memory_mib: Memory | None = Field(
        default=None, alias="memory", description="Limit on memory of all labs together."
    )
    """None for seven eighths of its memory."""
    disk_gib: Disk | None = Field(
        default=None, alias="disk", description="Limit on disk of all labs together."
    )
    """Sum of disk sizes; None for four times the free space of its storage (clones are thin)."""
    tags: Annotated[frozenset[Tag], Field(strict=False)] = Field(
        default=frozenset(), description="Tags that scenarios may ask for."
    )
    storage: Absolute = Field(
        default=STORAGE, description=("Directory for disks on this hypervisor.")
    )
    """Images and disks are in its subdirectory ``hybridlab/``."""
    address: Address | None = Field(
        default=None, description="Address of its end of the tunnels between hypervisors."
    )
    """None for the URI's host, or with a single hypervisor."""
    mtu: int = Field(
        default=UPLINK_MTU,
        ge=MIN_MTU,
        le=MAX_MTU,
        description="MTU of the network between hypervisors, in bytes.",
    )
    acceleration: Acceleration = Field(
        default="auto", description='"auto" starts a tiny guest to find out whether KVM works.'
    )
    parallel_boots: int | None = Field(
        default=None, ge=1, le=MAX_BOOTS, description="How many guests may boot at once."
    )
    """None for the number of its CPU threads."""
    line: Unwritten[int] = 0
    """Line of the entry in the inventory file, from 1; 0 for the default inventory."""


class ImageSource(Section):
    """Where an image's input comes from, if not from where its recipe says."""

    url: Url | None = Field(default=None, description="Address to fetch it from.")
    """URL, or the path of a local file (an ISO that cannot be downloaded)."""
    path: File | None = Field(default=None, exclude=True, description="File on this machine.")
    """Only in the file: a loaded inventory has the path in ``url``."""
    sha256: Digest | None = Field(default=None, description="Its SHA-256.")


class Proxies(Section):
    """As the environment variables of these names mean them."""

    http: Proxy | None = Field(default=None, description="For http addresses.")
    https: Proxy | None = Field(default=None, description="For https addresses.")
    no_proxy: Word | None = Field(
        default=None,
        description=("Hosts to reach without the proxy."),
        examples=["localhost,.example"],
    )

    def by_name(self) -> Mapping[str, str]:
        """The proxies that are set."""
        return {name: value for name, value in self if value is not None}


class Secret(Section):
    """Where a secret is read from, never what it is."""

    file: File | None = Field(default=None, description="A file that only its owner can read.")
    environment: Variable | None = Field(
        default=None, alias="env", description="An environment variable."
    )


class Inventory(Section):
    """All of one inventory file: what labs on real machines may use."""

    owner: Word | None = Field(
        default=None, description=("Owner written into every object that labs make.")
    )
    """None for user@host."""
    expiry: Expiry | None = Field(
        default=None, description="Age after which anyone may remove a lab."
    )
    """Seconds; None for no expiry."""
    cache: File | None = Field(default=None, description="Directory of images and downloads.")
    """None for ``$XDG_CACHE_HOME/hybridlab``."""
    management: Management = Field(
        default_factory=Management, description="How machines are reached."
    )
    storage: Storage = Field(
        default_factory=Storage, exclude=True, description="Where disks are kept."
    )
    """Only in the file: in a loaded inventory, each hypervisor has its own."""
    hypervisors: dict[str, Hypervisor] = Field(
        default={},
        description="Hypervisors, by a name of your choice.",
        examples=[{"rack1": {"uri": uri.LOCAL}}],
    )
    images: dict[str, ImageSource] = Field(
        default={}, description=("Images, by the name of the recipe.")
    )
    mirrors: dict[str, Url] = Field(
        default={}, description="Mirrors: replacements for addresses that begin with the key."
    )
    """The longest matching key applies."""
    proxies: Proxies = Field(default_factory=Proxies, description="For downloads.")
    secrets: dict[str, Secret] = Field(default={}, description="By name.")
    path: Unwritten[str | None] = None
    """The file; None for the default inventory."""


_LOCAL = Hypervisor.model_construct(name="local", uri=uri.LOCAL)
STOCK = Inventory.model_construct(hypervisors={_LOCAL.name: _LOCAL})
"""Default of ``--provider libvirt`` without an inventory: this machine's libvirt."""

_GIB = 1024


def plain(inventory: Inventory) -> dict[str, object]:
    """The inventory as JSON values."""
    return {
        **inventory.model_dump(mode="json"),
        "hypervisors": [
            {**dict(hypervisor), "tags": sorted(hypervisor.tags)}
            for hypervisor in inventory.hypervisors.values()
        ],
        "management": str(inventory.management.cidr),
        "proxies": inventory.proxies.by_name(),
        "secrets": {
            name: {"file": str(secret.file)} if secret.file else {"env": secret.environment}
            for name, secret in inventory.secrets.items()
        },
        "path": inventory.path,
    }


def account(inventory: Inventory) -> Iterator[str]:
    """The inventory as lines of text."""
    yield f"inventory {inventory.path or 'of this machine'}"
    yield f"  owner       {inventory.owner or 'user@host'}"
    yield f"  expiry      {_age(inventory.expiry)}"
    yield f"  management  {inventory.management.cidr}, a /24 per lab"
    yield f"  cache       {inventory.cache or 'in the cache directory of the user'}"
    for hypervisor in inventory.hypervisors.values():
        yield from _describe_hypervisor(hypervisor)
    if not inventory.hypervisors:
        yield "no hypervisors: labs run in network namespaces"
    for name, image in inventory.images.items():
        yield f"image {name}: {image.url or 'from where its recipe says'}"
    for address, instead in inventory.mirrors.items():
        yield f"mirror of {address}: {instead}"
    for name, proxy in inventory.proxies.by_name().items():
        yield f"proxy {name}: {proxy}"
    for name, secret in inventory.secrets.items():
        place = f"file {secret.file}" if secret.file else f"variable {secret.environment}"
        yield f"secret {name}: from {place}"


def _describe_hypervisor(hypervisor: Hypervisor) -> Iterator[str]:
    memory = (
        "all but an eighth"
        if hypervisor.memory_mib is None
        else f"{hypervisor.memory_mib / _GIB:g} GiB"
    )
    disk = (
        "four times what is free" if hypervisor.disk_gib is None else f"{hypervisor.disk_gib} GiB"
    )
    vcpus = hypervisor.vcpus or "eight times its threads"
    yield f"hypervisor {hypervisor.name}: {hypervisor.uri}"
    yield f"  limits      {vcpus} vCPUs; memory {memory}; disk {disk}"
    yield f"  storage     {hypervisor.storage}"
    yield f"  tunnels     {hypervisor.address or 'to the host of the URI'}, MTU {hypervisor.mtu}"
    boots = hypervisor.parallel_boots or "one a thread"
    yield f"  boots       {boots} at once, {hypervisor.acceleration}"
    if hypervisor.tags:
        yield f"  tags        {', '.join(sorted(hypervisor.tags))}"


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    days, hours = seconds / 86_400, seconds / 3600
    return f"{days:g} days" if days >= 1 else f"{hours:g} hours"
