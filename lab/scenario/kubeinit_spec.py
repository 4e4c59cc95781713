"""Kubeinit's spec strings, ``k8s-libvirt-1-2-2,compute-02.os=windows``, as scenarios. Pure.

The numbers count controllers, computes and hypervisors; every node is Linux unless an option says
otherwise, as in Kubeinit. An option applies to a group of nodes, or to one node by name. Kubeinit's
own variables are options too: ``cluster_nodes_spec=[[when_group=compute_nodes,os=windows]]``. An
error says at which character the wrong part starts.

Addresses are Kubeinit's: nodes in 10.0.0.0/24 from the first address on, controllers before
computes; the services node has the name server's address, .253; the gateway .254 (from its
group_vars/kubeinit_network.yml). The pod range is that of its role kubeinit_k8s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from ipaddress import IPv4Address, IPv4Network

from lab._dataclass import dataclass
from lab._log import quantity
from lab.scenario import values
from lab.scenario.findings import FileFinding, alternatives, cut, did_you_mean, quoted
from lab.scenario.scenario import MAX_HYPERVISORS, hypervisor_name

FORM = "DISTRIBUTION-DRIVER-CONTROLLERS-COMPUTES-HYPERVISORS[,GROUP.KEY=VALUE]..."
EXAMPLE = "k8s-libvirt-1-2-2,compute.os=windows"
DISTRIBUTION, DRIVER = "k8s", "libvirt"
OTHERS = ("okd", "ocp", "rke", "eks", "kid", "cdk")
"""Other distributions that Kubeinit deploys."""
GROUPS = ("controller", "compute", "services")
KEYS = ("os", "memory", "vcpus", "disk", "hypervisor")
NODES_SPEC = "cluster_nodes_spec"
NODES_EXAMPLE = f"{NODES_SPEC}=[[when_group=compute_nodes,os=windows]]"
_NODE_GROUPS: Mapping[str, tuple[str, ...]] = {
    "controller_nodes": ("controller",),
    "compute_nodes": ("compute",),
    "cluster_nodes": ("controller", "compute"),
}
"""Kubeinit's groups of nodes; ``cluster_nodes`` is its default for ``when_group``."""
_NODE_KEYS = {"os": "os", "vcpus": "vcpus", "ram": "memory", "disk": "disk"}
"""Kubeinit's keys of nodes, and those of this module."""
_VARIABLES = {
    "controller_node_ram_size": ("controller_nodes", "ram"),
    "controller_node_disk_size": ("controller_nodes", "disk"),
    "compute_node_ram_size": ("compute_nodes", "ram"),
    "compute_node_disk_size": ("compute_nodes", "disk"),
    "cluster_node_vcpus": ("cluster_nodes", "vcpus"),
}
"""Kubeinit's variables with one value for a group (its group_vars/kubeinit_defaults.yml)."""
_LAUNCHED_FROM = ("h", "c")
"""A sixth part, which Kubeinit ignores: its CI runs Ansible on the host or in a container."""
MAX_API_SERVERS = 5
"""etcd's documentation recommends no more members; HAProxy shows each within 64 tries."""
MAX_COMPUTES = 200
"""Kubeinit's 10.0.0.0/24 has 252 addresses for nodes."""
MAX_VCPUS = 256
_COUNTS = (
    ("controllers", 1, MAX_API_SERVERS),
    ("computes", 0, MAX_COMPUTES),
    ("hypervisors", 1, MAX_HYPERVISORS),
)
_KIB_IN_MIB = 1 << 10
_KIB_IN_GIB = 1 << 20
_LINE = 120
"""Longest string under which errors are marked with ``^``."""
_DIGITS = 12
"""Digits of a number that is read; Python's limit is 4,300."""

Value = str | int


@dataclass(frozen=True, slots=True)
class Spec:
    """A parsed spec string."""

    written: str
    controllers: int
    computes: int
    hypervisors: int
    options: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """By group or node, then by key: memory in MiB, disk in GiB, hypervisors by number."""

    @property
    def name(self) -> str:
        """The scenario's name: the spec string without its options."""
        return self.written.partition(",")[0]

    def of(self, group: str, node: str) -> Mapping[str, Value]:
        """The options of one node; its own override those of its group."""
        return {**self.options.get(group, {}), **self.options.get(node, {})}


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the string, and the column of its first character, counted from 1."""

    text: str
    col: int

    def split(self, sign: str) -> tuple[_Part, ...]:
        parts: list[_Part] = []
        col = self.col
        for text in self.text.split(sign):
            parts.append(_Part(text, col))
            col += len(text) + len(sign)
        return tuple(parts)

    def wrong(self, message: str, hint: str) -> FileFinding:
        return FileFinding(("spec",), 1, self.col, message, hint)


def is_meant(written: str) -> bool:
    """Whether the text looks like a spec string, valid or not."""
    parts = written.partition(",")[0].split("-")
    begins = parts[0] in {DISTRIBUTION, *OTHERS} and len(parts) > 1
    numbers = len(parts) > 3 and all(part.isdecimal() for part in parts[-3:])  # noqa: PLR2004  three counts
    return begins or DRIVER in parts[1:2] or numbers


def read(written: str) -> tuple[Spec | None, tuple[FileFinding, ...]]:
    """Parse a spec string; without errors the spec, else None with all findings."""
    for col, letter in enumerate(written, start=1):
        if not letter.isprintable():
            message = f"the character U+{ord(letter):04X} is not a part of a spec"
            return None, (_Part(letter, col).wrong(message, "delete it"),)
    head, *options = _split_entries(_Part(written, 1))
    findings = [*_read_head(head)]
    if findings:
        return None, tuple(findings)
    controllers, computes, hypervisors = (_number(part.text) for part in head.split("-")[2:5])
    spec = Spec(written, controllers, computes, hypervisors)
    settings: dict[str, dict[str, Value]] = {}
    for option in options:
        variable, sign, _ = option.text.partition("=")
        value = _Part(option.text[len(variable) + 1 :], option.col + len(variable) + 1)
        if sign and variable == NODES_SPEC:
            findings += _nodes_spec(value, spec, settings)
        elif sign and variable in _VARIABLES:
            group, key = _VARIABLES[variable]
            findings += _read_setting(_NODE_GROUPS[group], key, value, spec, settings)
        else:
            findings += _read_option(option, spec, settings)
    if findings:
        return None, tuple(findings)
    return Spec(written, controllers, computes, hypervisors, settings), ()


def describe(written: str, findings: tuple[FileFinding, ...]) -> tuple[str, ...]:
    """Every finding with a mark below its part, or its column in a long string, and the syntax."""
    ordered = sorted(findings, key=lambda finding: finding.col)
    long = len(written) > _LINE
    where = [
        f"character {finding.col}:" if long else f"{' ' * (finding.col - 1)}^"
        for finding in ordered
    ]
    lines = [
        f"{at} {finding.what}; {finding.hint}" for at, finding in zip(where, ordered, strict=True)
    ]
    lines[0] = f"{_shown(cut(written) if long else written)}\n{lines[0]}"
    lines[-1] += f"\nthe form is {FORM}, such as {EXAMPLE}"
    return tuple(lines)


def nodes(group: str, count: int) -> tuple[str, ...]:
    """Kubeinit's node names of a group: compute-01, compute-02, ..."""
    return tuple(f"{group}-{number:02}" for number in range(1, count + 1))


def _split_entries(part: _Part) -> tuple[_Part, ...]:
    """The part split at its commas; those within brackets do not count."""
    depth, start = 0, 0
    entries: list[_Part] = []
    for index, letter in enumerate(part.text):
        depth = max(0, depth + (letter in "[{") - (letter in "]}"))
        if letter == "," and not depth:
            entries.append(_Part(part.text[start:index], part.col + start))
            start = index + 1
    return (*entries, _Part(part.text[start:], part.col + start))


def _shown(written: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in written)


def _read_head(head: _Part) -> Iterator[FileFinding]:
    parts = head.split("-")
    names = ("distribution", "driver", *(f"number of {name}" for name, _, _ in _COUNTS))
    checks: tuple[Callable[[_Part], Iterator[FileFinding]], ...] = (
        _check_distribution,
        _check_driver,
    )
    for part, check in zip(parts, checks, strict=False):
        yield from check(part)
    for part, (name, least, most) in zip(parts[2:], _COUNTS, strict=False):
        yield from _count(part, name, least, most)
    if len(parts) < len(names):
        end = _Part("", head.col + len(head.text))
        lacking = " and no ".join(names[len(parts) :])
        yield end.wrong(f"there is no {lacking}", f"write {quoted('k8s-libvirt-1-2-2')}")
    extras = parts[len(names) :]
    if len(extras) > 1 or any(extra.text not in _LAUNCHED_FROM for extra in extras):
        extra = extras[0]
        message = f"{quoted(extra.text)} is an extra part"
        yield extra.wrong(message, "end with the number of hypervisors; options begin with a comma")


def _check_distribution(part: _Part) -> Iterator[FileFinding]:
    if part.text in OTHERS:
        message = f"{quoted(part.text)} is another of Kubeinit's distributions; lab makes "
        yield part.wrong(f"{message}upstream Kubernetes", f"write {quoted(DISTRIBUTION)}")
    elif part.text != DISTRIBUTION:
        message = f"{quoted(part.text)} is not a known distribution"
        yield part.wrong(message, f"write {quoted(DISTRIBUTION)}")


def _check_driver(part: _Part) -> Iterator[FileFinding]:
    if part.text != DRIVER:
        message = f"{quoted(part.text)} is not a driver that Kubeinit has"
        hint = f'write {quoted(DRIVER)}; where the lab runs is chosen by "--provider"'
        yield part.wrong(message, hint)


def _count(part: _Part, name: str, least: int, most: int) -> Iterator[FileFinding]:
    hint = f"write a whole number from {least} to {most}"
    if not (part.text.isascii() and part.text.isdecimal()):
        yield part.wrong(f"{quoted(part.text)} is not a number of {name}", hint)
    elif not least <= _number(part.text) <= most:
        yield part.wrong(f"the lab cannot have {cut(part.text)} {name}", hint)


def _read_option(
    option: _Part, spec: Spec, options: dict[str, dict[str, Value]]
) -> Iterator[FileFinding]:
    shape = re.fullmatch(r"([^.=]*)\.([^.=]*)=(.*)", option.text)
    if shape is None:
        message = f"{quoted(option.text)} is not an option"
        example = f"write GROUP.KEY=VALUE, such as {quoted('compute.os=windows')}"
        variable = option.text.partition("=")[0]
        yield option.wrong(message, did_you_mean(variable, (NODES_SPEC, *_VARIABLES), example))
        return
    group, key, value = (_Part(shape[n], option.col + shape.start(n)) for n in (1, 2, 3))
    singles = (*nodes("controller", spec.controllers), *nodes("compute", spec.computes))
    if group.text not in {*GROUPS, *singles}:
        message = f"{quoted(group.text)} is neither a group of nodes nor a node of this spec"
        groups = f"the groups are {alternatives(GROUPS)}"
        yield group.wrong(message, did_you_mean(group.text, (*GROUPS, *singles), groups))
        return
    if key.text not in KEYS:
        message = f"{quoted(key.text)} is not a key of nodes"
        yield key.wrong(message, did_you_mean(key.text, KEYS, f"the keys are {alternatives(KEYS)}"))
        return
    if key.text in options.get(group.text, {}):
        yield group.wrong(f"{group.text}.{key.text} is given twice", "keep one of the two")
        return
    setting = _read_value(key.text, value.text, group.text, spec)
    if isinstance(setting, tuple):
        yield value.wrong(*setting)
    else:
        options.setdefault(group.text, {})[key.text] = setting


def _nodes_spec(
    value: _Part, spec: Spec, options: dict[str, dict[str, Value]]
) -> Iterator[FileFinding]:
    """Read Kubeinit's list of settings; a later one overrides an earlier one, as in Kubeinit.

    Each is a list of KEY=VALUE, as in Kubeinit's announcement of Windows, or a YAML mapping.
    """
    entries = _split_within(_unquote(value), "[")
    for entry in entries or ():
        pairs = _split_within(entry, "[{")
        if pairs is None:
            message = f"{quoted(entry.text)} is not a setting in brackets of its own"
            yield entry.wrong(message, f"write {NODES_EXAMPLE}")
            continue
        yield from _node_setting(pairs, spec, options)
    if entries is None:
        yield value.wrong(f"{quoted(value.text)} is not a list", f"write {NODES_EXAMPLE}")


def _node_setting(
    pairs: tuple[_Part, ...], spec: Spec, options: dict[str, dict[str, Value]]
) -> Iterator[FileFinding]:
    groups = _NODE_GROUPS["cluster_nodes"]
    settings: list[tuple[str, _Part]] = []
    for pair in pairs:
        shape = re.fullmatch(r"([^=:]*)[=:](.*)", pair.text)
        if shape is None:
            yield pair.wrong(f"{quoted(pair.text)} is not KEY=VALUE", f"write {NODES_EXAMPLE}")
            continue
        key, value = (_unquote(_Part(shape[n], pair.col + shape.start(n))) for n in (1, 2))
        if key.text in _NODE_KEYS:
            settings.append((key.text, value))
        elif key.text != "when_group":
            keys = ("when_group", *_NODE_KEYS)
            message = f"{quoted(key.text)} is not a key of {NODES_SPEC} that lab reads"
            yield key.wrong(
                message, did_you_mean(key.text, keys, f"the keys are {alternatives(keys)}")
            )
        elif value.text in _NODE_GROUPS:
            groups = _NODE_GROUPS[value.text]
        else:
            groups = ()
            message = f"{quoted(value.text)} is not a group of cluster nodes in Kubeinit"
            known = f"the groups are {alternatives(_NODE_GROUPS)}"
            yield value.wrong(message, did_you_mean(value.text, _NODE_GROUPS, known))
    for name, value in settings:
        yield from _read_setting(groups, name, value, spec, options)


def _read_setting(
    groups: tuple[str, ...],
    key: str,
    value: _Part,
    spec: Spec,
    options: dict[str, dict[str, Value]],
) -> Iterator[FileFinding]:
    """Give groups of nodes a value of Kubeinit's."""
    text = _from_kubeinit(key, value.text)
    if isinstance(text, tuple):
        yield value.wrong(*text)
        return
    for group in groups:
        setting = _read_value(_NODE_KEYS[key], text, group, spec)
        if isinstance(setting, tuple):
            yield value.wrong(*setting)
            return
        options.setdefault(group, {})[_NODE_KEYS[key]] = setting


def _from_kubeinit(key: str, text: str) -> str | tuple[str, str]:
    """A value of Kubeinit's as this module writes it, or the error and a hint."""
    if key == "ram":
        if text.isascii() and text.isdecimal():
            return f"{_number(text) // _KIB_IN_MIB}MiB"
        return f"{quoted(text)} is not a number of KiB", 'write it like "16777216", for 16 GiB'
    if key == "disk":
        if re.fullmatch("[0-9]{1,7}G", text):
            return f"{text}iB"
        return f"{quoted(text)} is not a size of a disk in Kubeinit", 'write it like "30G"'
    return "linux" if (key, text) == ("os", "debian") else text


def _split_within(part: _Part, opening: str) -> tuple[_Part, ...] | None:
    """The entries between the part's brackets; None if it has none of these brackets."""
    start = len(part.text) - len(part.text.lstrip())
    text = part.text.strip()
    closing = {"[": "]", "{": "}"}.get(text[:1], "")
    if len(text) < len("[]") or text[0] not in opening or not text.endswith(closing):
        return None
    return _split_entries(_Part(text[1:-1], part.col + start + 1))


def _unquote(part: _Part) -> _Part:
    """The part without the spaces and quotes around it."""
    text = part.text.strip(" ")
    col = part.col + len(part.text) - len(part.text.lstrip(" "))
    if len(text) >= len("''") and text[0] in "\"'" and text[-1] == text[0]:
        return _Part(text[1:-1], col + 1)
    return _Part(text, col)


def _read_value(key: str, text: str, group: str, spec: Spec) -> Value | tuple[str, str]:
    """The value of a key, or the error and a hint."""
    if key == "os":
        return _read_system(text, group)
    if key in {"memory", "disk"}:
        check = values.memory if key == "memory" else values.disk
        wrong = values.wrong_of(check, text)
        if wrong is None:
            return check(text)
        return (wrong[0], _in_gib(text)) if key == "memory" and text.isdecimal() else wrong
    most = MAX_VCPUS if key == "vcpus" else spec.hypervisors
    if text.isascii() and text.isdecimal() and 1 <= _number(text) <= most:
        return _number(text)
    named = "processors" if key == "vcpus" else "this spec's hypervisors"
    return (
        f"{quoted(text)} is not a number of {named}"
        if key == "vcpus"
        else f"{quoted(text)} is none of {named}",
        f"write a whole number from 1 to {most}",
    )


def _number(text: str) -> int:
    """The number, or a too large one if it has too many digits."""
    significant = text.lstrip("0")
    return int(significant or "0") if len(significant) <= _DIGITS else 10**_DIGITS


def _read_system(text: str, group: str) -> Value | tuple[str, str]:
    if text not in {"linux", "windows"}:
        choice = did_you_mean(text, ("linux", "windows"), 'write "linux" or "windows"')
        return f"{quoted(text)} is not an operating system of a node", choice
    if text == "windows" and not group.startswith("compute"):
        message = "only computes can be Windows: control planes and the services node are Linux"
        return message, 'write "linux", or leave the option out'
    return text


def _in_gib(text: str) -> str:
    """A hint for memory written as a number of KiB, as in Kubeinit."""
    gib = max(1, _number(text) // _KIB_IN_GIB)
    return f"Kubeinit's numbers are KiB: write {quoted(f'{gib}GiB')}"


NETWORK = IPv4Network("10.0.0.0/24")
GATEWAY, NAME_SERVER = NETWORK[-2], NETWORK[-3]
DOMAIN = "k8scluster.kubeinit.local"
"""Kubeinit's cluster name and domain, by default."""
WINDOWS_IMAGE = "windows-server-2022"
"""The only Windows version that Kubeinit supports (its author, July 2022)."""
_SHARED = 4
_PODS_PER_NODE = 2
_UNITS = {"memory": "MiB", "disk": "GiB", "vcpus": ""}


def to_yaml(spec: Spec) -> str:
    """The scenario file of a spec, with the spec string in a comment at the top."""
    pods = _PODS_PER_NODE * (spec.controllers + spec.computes)
    on = quantity(spec.hypervisors, "hypervisor")
    listed = "".join(f"  - {{{', '.join(_node(*node, spec))}}}\n" for node in _nodes(spec))
    return f"""# Made from the spec string {spec.written}
name: {spec.name}
summary: Kubeinit's {spec.name}, {quantity(spec.controllers, "controller")}, \
{quantity(spec.computes, "compute")}, a services node, on {on}

kubernetes:
  version: "1.36"
  pod_cidr: 10.244.0.0/16
  node_prefix: 24
  service_cidr: 10.96.0.0/12
  dns_address: 10.96.0.10

network:
  cidr: {NETWORK}
  router: {GATEWAY}
  domain: {DOMAIN}

hypervisors:
  count: {spec.hypervisors}

topology:
  kind: kubeinit
  vni: 4096
  port: 4789

pods_per_node: {_PODS_PER_NODE}

nodes:
{listed}
services:
  shared:
    - {{name: everyone, backends: {min(_SHARED, pods)}}}
"""


def _nodes(spec: Spec) -> Iterator[tuple[str, str, str, IPv4Address]]:
    """Name, group, role and address of every node, in Kubeinit's order."""
    addresses = NETWORK.hosts()
    for name in nodes("controller", spec.controllers):
        yield name, "controller", "control-plane", next(addresses)
    for name in nodes("compute", spec.computes):
        yield name, "compute", "worker", next(addresses)
    yield "services", "services", "services", NAME_SERVER


def _node(name: str, group: str, role: str, address: IPv4Address, spec: Spec) -> Iterator[str]:
    options = spec.of(group, name)
    os = options.get("os", "linux")
    yield from (f"name: {name}", f"os: {os}", f"role: {role}", f"address: {address}")
    if os == "windows":
        yield f"image: {WINDOWS_IMAGE}"
    for key, value in options.items():
        if key in _UNITS:
            yield f"{key}: {value}{_UNITS[key]}"
        elif key == "hypervisor":
            yield f"hypervisor: {hypervisor_name(int(value))}"
