"""The shape of an inventory file, as pydantic models: the edge between TOML and the product.

The models check every value on its own; what values mean together is checked in
:mod:`lab.inventory.rules`. The first example of a required field stands in for a broken value
while the rest of the file is checked.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from lab.inventory import uri, values
from lab.inventory.inventory import MANAGEMENT, STORAGE, UPLINK_MTU, Acceleration
from lab.scenario import values as common
from lab.scenario.dialect import Dialect
from lab.scenario.schema import MAX_MTU
from lab.scenario.section import Section

MIN_MTU = 1280
"""A Kubernetes node that has less cannot carry IPv6 (RFC 8200), nor VXLAN pods at 1230."""
MAX_VCPUS = 4096
MAX_BOOTS = 1024


def _text(check: Any, example: str, pattern: str | None = None) -> Any:
    """Annotations of a value written as text and checked by ``check``."""
    published: dict[str, Any] = {"type": "string", "examples": [example]}
    if pattern:
        published["pattern"] = pattern
    return BeforeValidator(check), WithJsonSchema(published)


def _uri(value: object) -> str:
    return uri.check(common.text(value).strip())


Word = Annotated[str, *_text(values.word, "team-network")]
Expiry = Annotated[float, *_text(values.expiry, "2d", values.EXPIRY)]
Range = Annotated[IPv4Network, *_text(values.management, str(MANAGEMENT), common.CIDR)]
Absolute = Annotated[str, *_text(values.absolute, STORAGE)]
Path = Annotated[str, *_text(values.path, "windows-server-2022.iso")]
Url = Annotated[str, *_text(values.url, "https://images.example/image.qcow2")]
Proxy = Annotated[str, *_text(values.proxy, "http://proxy.example:3128")]
Digest = Annotated[str, *_text(values.sha256, "0" * 64, values.SHA256)]
Variable = Annotated[str, *_text(values.variable, "WINDOWS_ADMIN_PASSWORD", values.VARIABLE)]
Tag = Annotated[str, *_text(values.tag, "ssd")]
UriText = Annotated[str, *_text(_uri, uri.LOCAL)]
Address = Annotated[IPv4Address, *_text(common.address, "192.0.2.10", common.ADDRESS)]
Memory = Annotated[int, *_text(common.memory, "64GiB", common.MEMORY)]
Disk = Annotated[int, *_text(common.disk, "500GiB", common.DISK)]


class Management(Section):
    """The range by which this machine reaches the machines of its labs."""

    cidr: Range = Field(default=MANAGEMENT, description="Every lab takes a /24 of it.")


class Storage(Section):
    """Where hypervisors keep disks."""

    path: Absolute = Field(
        default=STORAGE, description="Directory on every hypervisor that names no other."
    )


class Hypervisor(Section):
    """One libvirt host."""

    uri: UriText = Field(description="libvirt's address of it.")
    vcpus: int | None = Field(
        default=None,
        ge=1,
        le=MAX_VCPUS,
        description="Virtual CPUs of all labs together.",
        examples=[16],
    )
    memory: Memory | None = Field(default=None, description="Memory of all labs together.")
    disk: Disk | None = Field(default=None, description="Disk of all labs together.")
    tags: list[Tag] = Field(default=[], description="What scenarios may ask for.")
    storage: Absolute | None = Field(default=None, description="Directory of its own for disks.")
    address: Address | None = Field(
        default=None, description="Its end of the tunnels between hypervisors."
    )
    mtu: int = Field(
        default=UPLINK_MTU,
        ge=MIN_MTU,
        le=MAX_MTU,
        description="Bytes of an IP packet that fit on the network between hypervisors.",
    )
    acceleration: Acceleration = Field(
        default="auto", description='"auto" starts a tiny guest to see what works.'
    )
    parallel_boots: int | None = Field(
        default=None, ge=1, le=MAX_BOOTS, description="Guests that may boot at once."
    )


class Image(Section):
    """Where an image's input comes from, if not from where its recipe says."""

    url: Url | None = Field(default=None, description="Address to fetch it from.")
    path: Path | None = Field(default=None, description="File on this machine.")
    sha256: Digest | None = Field(default=None, description="What it must be.")


class Proxies(Section):
    """As the environment variables of these names mean them."""

    http: Proxy | None = Field(default=None, description="For http addresses.")
    https: Proxy | None = Field(default=None, description="For https addresses.")
    no_proxy: Word | None = Field(
        default=None, description="Hosts to reach directly.", examples=["localhost,.example"]
    )


class Secret(Section):
    """Where a secret is read from, never what it is."""

    file: Path | None = Field(
        default=None, description="A file that nobody but its owner can read."
    )
    env: Variable | None = Field(default=None, description="An environment variable.")


class InventoryFile(Section):
    """What labs on real machines may use."""

    owner: Word | None = Field(default=None, description="Written into every object made.")
    expiry: Expiry | None = Field(
        default=None, description="How long a lab lives before anyone may collect it."
    )
    cache: Path | None = Field(default=None, description="Where images and downloads are kept.")
    management: Management = Field(
        default_factory=Management, description="How machines are reached."
    )
    storage: Storage = Field(default_factory=Storage, description="Where disks are kept.")
    hypervisors: dict[str, Hypervisor] = Field(
        default={},
        description="By a name of your own.",
        examples=[{"rack1": {"uri": uri.LOCAL}}],
    )
    images: dict[str, Image] = Field(default={}, description="By the name of the recipe.")
    mirrors: dict[str, Url] = Field(
        default={}, description="What is asked instead of addresses that begin so."
    )
    proxies: Proxies = Field(default_factory=Proxies, description="For downloads.")
    secrets: dict[str, Secret] = Field(default={}, description="By name.")


def as_toml(value: object) -> str:
    """A value as one would write it in TOML, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        inside = ", ".join(f"{name} = {as_toml(one)}" for name, one in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(as_toml(one) for one in value)}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


TOML = Dialect(
    whole="the inventory",
    entries={"hypervisors": "hypervisor", "images": "image", "secrets": "secret"},
    other_entry="entry",
    mapping="table",
    assign=" = ",
    listing='write it in brackets, such as ["a", "b"]',
    written=as_toml,
)
"""Inventory files."""
