"""An inventory, told: as plain data, and in lines for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lab.inventory.inventory import Hypervisor, Inventory

_GIB = 1024


def plain(inventory: Inventory) -> dict[str, object]:
    """The inventory as JSON can hold it."""
    return {
        **inventory.model_dump(mode="json"),
        "hypervisors": [
            {**dict(one), "tags": sorted(one.tags)} for one in inventory.hypervisors.values()
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
    """The inventory, line by line."""
    yield f"inventory {inventory.path or 'of this machine'}"
    yield f"  owner       {inventory.owner or 'user@host'}"
    yield f"  expiry      {_age(inventory.expiry)}"
    yield f"  management  {inventory.management.cidr}, a /24 a lab"
    yield f"  cache       {inventory.cache or 'in the cache directory of the user'}"
    for one in inventory.hypervisors.values():
        yield from _hypervisor(one)
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


def _hypervisor(one: Hypervisor) -> Iterator[str]:
    memory = "all but an eighth" if one.memory_mib is None else f"{one.memory_mib / _GIB:g} GiB"
    disk = "four times what is free" if one.disk_gib is None else f"{one.disk_gib} GiB"
    vcpus = one.vcpus or "eight times its threads"
    yield f"hypervisor {one.name}: {one.uri}"
    yield f"  limits      {vcpus} vCPUs; memory {memory}; disk {disk}"
    yield f"  storage     {one.storage}"
    yield f"  tunnels     {one.address or 'to the host of the URI'}, MTU {one.mtu}"
    yield f"  boots       {one.parallel_boots or 'one a thread'} at once, {one.acceleration}"
    if one.tags:
        yield f"  tags        {', '.join(sorted(one.tags))}"


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    days, hours = seconds / 86_400, seconds / 3600
    return f"{days:g} days" if days >= 1 else f"{hours:g} hours"
