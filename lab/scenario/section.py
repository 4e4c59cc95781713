"""What every mapping of a scenario file has in common, and the values written as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticKnownError

from lab.scenario import values
from lab.scenario.versions import SUPPORTED

FILE = "file"
"""The context in which a file is validated: its texts are read, its keys are those it may have.

Without it values are taken as they are, by the names of the fields.
"""


def text(check: Callable[[Any], object], pattern: str | None, *examples: str, **more: Any) -> Any:
    """Annotations of a value written as text and read by ``check``."""

    def read(value: object, info: ValidationInfo) -> object:
        return check(value) if info.context == FILE else value

    published: dict[str, Any] = {"type": "string"}
    if pattern:
        published["pattern"] = pattern
    return BeforeValidator(read), WithJsonSchema(published | {"examples": [*examples]} | more)


def _refuse(value: object, info: ValidationInfo) -> object:
    if info.context == FILE:
        raise PydanticKnownError("extra_forbidden")
    return value


def _written(form: Callable[[Any], str]) -> PlainSerializer:
    """How a value is written in a file."""
    return PlainSerializer(form, when_used="json-unless-none")


T = TypeVar("T")

Unwritten = Annotated[SkipJsonSchema[T], BeforeValidator(_refuse), Field(exclude=True)]
"""What the lab fills in, and no file has."""


def _once(values: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))


def _sorted(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted({*values}))


Items = Annotated[tuple[T, ...], Field(strict=False)]
"""A list in the file."""
SomeItems = Annotated[tuple[T, ...], Field(strict=False, min_length=1)]
Choices = Annotated[SomeItems[T], AfterValidator(_once)]
SortedChoices = Annotated[SomeItems[T], AfterValidator(_sorted)]
Sentence = Annotated[str, *text(values.sentence, None, "What this lab is for, in one line")]
Label = Annotated[str, *text(values.label, values.LABEL, "my-lab")]
Domain = Annotated[str, *text(values.domain, values.DOMAIN, "cluster.local")]
Cidr = Annotated[IPv4Network, *text(values.cidr, values.CIDR, "10.244.0.0/16")]
Address = Annotated[IPv4Address, *text(values.address, values.ADDRESS, "10.96.0.10")]
Version = Annotated[
    str, *text(values.version, values.VERSION, SUPPORTED[-1], enum=[*reversed(SUPPORTED)])
]
Mac = Annotated[str, *text(values.mac, values.MAC, "0a:58:0a:09:b0:02")]
Memory = Annotated[
    int, *text(values.memory, values.MEMORY, "2GiB", "4096MiB"), _written("{}MiB".format)
]
"""In MiB."""
Disk = Annotated[int, *text(values.disk, values.DISK, "20GiB"), _written("{}GiB".format)]
"""In GiB."""
Ports = Annotated[
    tuple[int, int],
    *text(values.ports, values.PORTS, "30000-32767"),
    _written(lambda ports: f"{ports[0]}-{ports[1]}"),
]


class Section(BaseModel):
    """What every mapping of the file has in common: no unknown keys, no quiet conversions."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, validate_by_name=True, defer_build=True
    )

    def replace(self, **changes: Any) -> Self:
        """The same with other values of some fields, which are not validated."""
        free = self.model_config["extra"] == "allow"
        assert free or changes.keys() <= type(self).model_fields.keys(), [*changes]
        return self.model_copy(update=changes)
