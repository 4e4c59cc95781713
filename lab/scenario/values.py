"""Single values of a scenario file: text in, checked value out.

Every function raises :class:`pydantic_core.PydanticCustomError` of type ``"wrong"``, whose
context has ``what`` and ``hint``, or ``"string_type"`` for a value that is not text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, ip_address
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
from pydantic_core import PydanticCustomError, PydanticKnownError

from lab.scenario import topics
from lab.scenario.findings import quoted
from lab.scenario.versions import SUPPORTED

LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
"""A DNS label (RFC 1123) in lower case, as Kubernetes requires."""
DOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
CIDR = r"^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}$"
ADDRESS = r"^[0-9]{1,3}(\.[0-9]{1,3}){3}$"
VERSION = r"^1\.[0-9]{1,3}$"
MAC = r"^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$"
MEMORY = r"^[1-9][0-9]{0,6}(MiB|GiB)$"
MAX_MTU = 9216
"""The largest frame that network cards and switches commonly support."""
LEAST_MEMORY_MIB = 64
"""A kernel with its initramfs does not fit into less."""
RATE = r"^[1-9][0-9]{0,6}(kbit|mbit|gbit)$"
"""As tc writes it, so many a second."""
DELAY = r"^[1-9][0-9]{0,3}ms$"
MAX_DELAY_MS = 1_000
"""Further than the other side of the Earth or a satellite; TCP gives up on no probe at it."""
LOSS = r"^[0-9]{1,2}(\.[0-9])? ?%$"
MAX_LOSS = 50.0
"""Per cent; hardly a probe of two packets arrives beyond it."""
DISK = r"^[1-9][0-9]{0,6}(GiB|TiB)$"
RATE_UNITS = {"kbit": 1_000, "mbit": 1_000_000, "gbit": 1_000_000_000}
PORTS = r"^[0-9]{1,5}-[0-9]{1,5}$"

MAX_DOMAIN = 177
"""253 characters of a DNS name, less the longest ``to-NODE-pN.default.svc.`` before it."""
MAX_PORT = 65535
_MULTICAST_BIT = 1
_RULE = 'a DNS label holds a-z, 0-9 and "-", and begins and ends with a letter or a digit'


def wrong(message: str, hint: str) -> PydanticCustomError:
    """The error for a value that has the right type but is invalid."""
    return PydanticCustomError("wrong", "{what}; {hint}", {"what": message, "hint": hint})


def wrong_of(check: Callable[[object], object], value: object) -> tuple[str, str] | None:
    """The error that a check finds in a value, and a hint; None if the value is valid."""
    try:
        check(value)
    except PydanticCustomError as error:
        context = error.context or {}
        return str(context["what"]), str(context["hint"])
    return None


def text(value: object) -> str:
    """The value, which must be text."""
    if not isinstance(value, str):
        raise PydanticKnownError("string_type")
    return value


def sentence(value: object) -> str:
    """One line of text that is not empty."""
    line = text(value).strip()
    if not line:
        raise wrong("this text is empty", "say it in a few words")
    if "\n" in line:
        raise wrong("this text has several lines", "say it in one line")
    return line


def label(value: object) -> str:
    """A DNS label of at most 63 characters."""
    name = text(value)
    if re.fullmatch(LABEL, name):
        return name
    if len(name) > 63:  # noqa: PLR2004  RFC 1123's own number, stated in the message
        raise wrong(
            f"{quoted(name)} has {len(name)} characters", "a DNS label has at most 63: shorten it"
        )
    better = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    hint = f"write {quoted(better)}: {_RULE}" if better else _RULE
    raise wrong(f"{quoted(name)} is not a DNS label (RFC 1123)", hint)


def domain(value: object) -> str:
    """The cluster's DNS domain."""
    name = text(value)
    if len(name) > MAX_DOMAIN:
        message = f"a domain of {len(name)} characters is too long for the names in it"
        raise wrong(message, f"use at most {MAX_DOMAIN}")
    if not re.fullmatch(DOMAIN, name) or any(len(part) > 63 for part in name.split(".")):  # noqa: PLR2004  RFC 1123
        better = name.lower().strip(".")
        hint = f"write {quoted(better)}" if re.fullmatch(DOMAIN, better) else 'use "cluster.local"'
        raise wrong(f"{quoted(name)} is not a DNS domain", hint)
    return name


def cidr(value: object) -> IPv4Network:
    """An IPv4 range whose host bits are zero."""
    written = text(value).strip()
    _refuse_several(written)
    _refuse_ipv6(written, "10.244.0.0/16")
    if re.fullmatch(ADDRESS, written):
        message = f"{quoted(written)} has no prefix length"
        raise wrong(message, f"write it with one, such as {quoted(written + '/24')}")
    try:
        network = IPv4Network(written if re.fullmatch(CIDR, written) else "", strict=False)
    except ValueError:
        message = f"{quoted(written)} is not an IPv4 range"
        raise wrong(message, 'write it as address/length, such as "10.244.0.0/16"') from None
    if str(network) != written:
        message = f"{quoted(written)} is an address within a range, not the range itself"
        raise wrong(message, f"write {quoted(network)}")
    return network


def address(value: object) -> IPv4Address:
    """An IPv4 address."""
    written = text(value).strip()
    _refuse_ipv6(written, "10.96.0.10")
    if "/" in written:
        message = f"{quoted(written)} is a range, not one address"
        raise wrong(message, f"write {quoted(written.partition('/')[0])}")
    try:
        return IPv4Address(written)
    except ValueError:
        message = f"{quoted(written)} is not an IPv4 address"
        raise wrong(
            message, 'write four numbers from 0 to 255 with dots, such as "10.96.0.10"'
        ) from None


def version(value: object) -> str:
    """A Kubernetes minor version, ``"1.36"``."""
    written = text(value)
    if re.fullmatch(VERSION, written):
        return written
    minor = re.match(r"v?(1\.[0-9]{1,3})(\.|$)", written)
    hint = f"write {quoted(minor.group(1))}" if minor else 'write it like "1.36"'
    raise wrong(f"{quoted(written)} is not a Kubernetes minor version", hint)


def mac(value: object) -> str:
    """A unicast MAC address, in lower case."""
    written = text(value).strip()
    if not re.fullmatch(MAC, written):
        dashes = written.replace("-", ":").lower()
        hint = (
            f"write {quoted(dashes)}"
            if re.fullmatch(MAC, dashes)
            else ('write six bytes with colons, such as "0a:58:0a:09:b0:02"')
        )
        raise wrong(f"{quoted(written)} is not a MAC address", hint)
    if int(written[:2], 16) & _MULTICAST_BIT:
        message = f"{quoted(written)} is a multicast address, which no card can have"
        raise wrong(message, 'make its first byte even, such as "0a"')
    return written.lower()


def memory(value: object) -> int:
    """Memory in MiB."""
    mebibytes = _read_amount(value, MEMORY, {"MiB": 1, "GiB": 1024}, "2GiB")
    if mebibytes < LEAST_MEMORY_MIB:
        message = f"no machine starts with {quoted(text(value))} of memory"
        raise wrong(message, f'write at least "{LEAST_MEMORY_MIB}MiB"; "2GiB" is usual')
    return mebibytes


def disk(value: object) -> int:
    """Disk size in GiB."""
    return _read_amount(value, DISK, {"GiB": 1, "TiB": 1024}, "20GiB")


def rate(value: object) -> int:
    """A rate in bits a second."""
    return _read_amount(value, RATE, RATE_UNITS, "100mbit")


def delay(value: object) -> int:
    """A delay in milliseconds."""
    milliseconds = _read_amount(value, DELAY, {"ms": 1}, "20ms")
    if milliseconds > MAX_DELAY_MS:
        message = f"{quoted(text(value))} is longer than probes wait for an answer"
        raise wrong(message, f'write at most "{MAX_DELAY_MS}ms"')
    return milliseconds


def loss(value: object) -> float:
    """A share of packets in per cent."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise wrong(f"{value} has no unit", f'write it with one, such as "{value}%"')
    written = text(value)
    share = float(written.rstrip("% ")) if re.fullmatch(LOSS, written) else 0.0
    if not 0 < share <= MAX_LOSS:
        message = f"{quoted(written)} is not a share of the packets"
        raise wrong(message, f'write one from "0.1%" to "{MAX_LOSS:g}%"')
    return share


def written_rate(bits: int) -> str:
    """The rate as one would write it: in the largest unit that it is a whole number of."""
    unit = next(unit for unit in reversed(RATE_UNITS) if not bits % RATE_UNITS[unit])
    return f"{bits // RATE_UNITS[unit]}{unit}"


def ports(value: object) -> tuple[int, int]:
    """First and last port of a range."""
    written = text(value).replace(" ", "")
    if not re.fullmatch(PORTS, written):
        message = f"{quoted(written)} is not a port range"
        raise wrong(message, 'write first-last, such as "30000-32767"')
    first, last = (int(part) for part in written.split("-"))
    if first < 1 or last > MAX_PORT:
        message = f"the port range {quoted(written)} is not within 1 to {MAX_PORT}"
        raise wrong(message, 'write one within it, such as "30000-32767"')
    if first > last:
        message = f"the port range {quoted(written)} ends before it begins"
        raise wrong(message, f"write {quoted(f'{last}-{first}')}")
    return first, last


def _read_amount(value: object, pattern: str, units: dict[str, int], example: str) -> int:
    """A number with a unit, converted to the first of ``units``."""
    if isinstance(value, int) and not isinstance(value, bool):
        smallest = next(iter(units))
        raise wrong(f"{value} has no unit", f"write it with one, such as {value}{smallest}")
    written = text(value).replace(" ", "")
    if not re.fullmatch(pattern, written):
        *others, last = units
        wanted = f"{', '.join(others)} or {last}"
        message = f"{quoted(written)} is not a whole number of {wanted}"
        raise wrong(message, f"write it like {quoted(example)}")
    number = written.rstrip("".join(units))
    return int(number) * units[written.removeprefix(number)]


def _refuse_several(written: str) -> None:
    ranges = [part.strip() for part in written.split(",")]
    if len(ranges) > 1:
        only = "a lab has one node network only, and one range each for pods and Services"
        why = topics.IPV6.brief if ":" in written else f"{only}; see {topics.PAGE}"
        first = next((part for part in ranges if "." in part), "10.244.0.0/16")
        message = f"{quoted(written)} is more than one range"
        raise wrong(message, f"write one, such as {quoted(first)}; {why}")


def _refuse_ipv6(written: str, example: str) -> None:
    host = written.partition("/")[0].partition("%")[0]
    try:
        six = ":" in host and ip_address(host).version == 6  # noqa: PLR2004  the protocol's number
    except ValueError:
        six = False
    if six:
        message = f"{quoted(written)} is IPv6"
        raise wrong(message, f"write an IPv4 one, such as {quoted(example)}; {topics.IPV6.brief}")


FILE = "file"
"""Validation context of a file: its text values are parsed, and only keys of the file are allowed.

Without it, values are not parsed, and keys are the names of fields.
"""


def annotate(
    check: Callable[[Any], object], pattern: str | None, *examples: str, **more: Any
) -> Any:
    """Annotations of a value that is written as text and parsed by ``check``."""

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


def _serialise_as(form: Callable[[Any], str]) -> PlainSerializer:
    """Serializes a value for a file."""
    return PlainSerializer(form, when_used="json-unless-none")


T = TypeVar("T")

Unwritten = Annotated[SkipJsonSchema[T], BeforeValidator(_refuse), Field(exclude=True)]
"""A field that the lab fills in, and that a file cannot have."""


def _drop_repeats(values: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))


def _sort_values(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted({*values}))


Items = Annotated[tuple[T, ...], Field(strict=False)]
"""A list in the file."""
SomeItems = Annotated[tuple[T, ...], Field(strict=False, min_length=1)]
Choices = Annotated[SomeItems[T], AfterValidator(_drop_repeats)]
SortedChoices = Annotated[SomeItems[T], AfterValidator(_sort_values)]
Sentence = Annotated[str, *annotate(sentence, None, "What this lab is for, in one line")]
Label = Annotated[str, *annotate(label, LABEL, "my-lab")]
Domain = Annotated[str, *annotate(domain, DOMAIN, "cluster.local")]
Cidr = Annotated[IPv4Network, *annotate(cidr, CIDR, "10.244.0.0/16")]
Address = Annotated[IPv4Address, *annotate(address, ADDRESS, "10.96.0.10")]
Version = Annotated[str, *annotate(version, VERSION, SUPPORTED[-1], enum=[*reversed(SUPPORTED)])]
Mac = Annotated[str, *annotate(mac, MAC, "0a:58:0a:09:b0:02")]
Memory = Annotated[
    int, *annotate(memory, MEMORY, "2GiB", "4096MiB"), _serialise_as(lambda mib: f"{mib}MiB")
]
"""In MiB."""
Disk = Annotated[int, *annotate(disk, DISK, "20GiB"), _serialise_as(lambda gib: f"{gib}GiB")]
"""In GiB."""
Rate = Annotated[int, *annotate(rate, RATE, "100mbit", "2gbit"), _serialise_as(written_rate)]
"""In bits a second."""
Delay = Annotated[int, *annotate(delay, DELAY, "20ms"), _serialise_as(lambda ms: f"{ms}ms")]
"""In milliseconds."""
Loss = Annotated[
    float, *annotate(loss, LOSS, "1%", "0.5%"), _serialise_as(lambda share: f"{share:g}%")
]
"""In per cent."""
Ports = Annotated[
    tuple[int, int],
    *annotate(ports, PORTS, "30000-32767"),
    _serialise_as(lambda ports: f"{ports[0]}-{ports[1]}"),
]


class Section(BaseModel):
    """Base of every mapping of the file: no unknown keys, no implicit conversions."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, validate_by_name=True, defer_build=True
    )

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; the new values are not validated."""
        free = self.model_config["extra"] == "allow"
        assert free or changes.keys() <= type(self).model_fields.keys(), [*changes]
        return self.model_copy(update=changes)
