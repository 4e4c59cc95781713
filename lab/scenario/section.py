"""What every mapping of a scenario file has in common, and the values written as text."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema

from lab.scenario import values
from lab.scenario.versions import SUPPORTED


def text(check: Any, pattern: str | None, *examples: str, **more: Any) -> Any:
    """Annotations of a value written as text and checked by ``check``."""
    published: dict[str, Any] = {"type": "string"}
    if pattern:
        published["pattern"] = pattern
    return BeforeValidator(check), WithJsonSchema(published | {"examples": [*examples]} | more)


Sentence = Annotated[str, *text(values.sentence, None, "What this lab is for, in one line")]
Label = Annotated[str, *text(values.label, values.LABEL, "my-lab")]
Domain = Annotated[str, *text(values.domain, values.DOMAIN, "cluster.local")]
Cidr = Annotated[IPv4Network, *text(values.cidr, values.CIDR, "10.244.0.0/16")]
Address = Annotated[IPv4Address, *text(values.address, values.ADDRESS, "10.96.0.10")]
Version = Annotated[
    str, *text(values.version, values.VERSION, SUPPORTED[-1], enum=[*reversed(SUPPORTED)])
]
Mac = Annotated[str, *text(values.mac, values.MAC, "0a:58:0a:09:b0:02")]
Memory = Annotated[int, *text(values.memory, values.MEMORY, "2GiB", "4096MiB")]
Disk = Annotated[int, *text(values.disk, values.DISK, "20GiB")]
Ports = Annotated[tuple[int, int], *text(values.ports, values.PORTS, "30000-32767")]


class Section(BaseModel):
    """What every mapping of the file has in common: no unknown keys, no quiet conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
