"""Begin a draft from a file of another tool, and list what it has no room for. Pure.

What a scenario can say is read; every other key is left out and listed, with what
:mod:`lab.scenario.topics` says of it. Defaults of what a file does not say are the tool's own.

Sources: kind's "Configuration" (v1alpha4), kubeadm's API reference (v1beta4), flannel's
"Configuration" and "Backends", the reference of Calico's operator (Installation).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network

from lab._errors import UsageError
from lab.lifecycle.draft import NodeDraft, ScenarioDraft, draft_nodes
from lab.scenario import foreign, source
from lab.scenario.findings import YAML_LANGUAGE, Document, FileKind, Key, quoted
from lab.scenario.foreign import ForeignFile
from lab.scenario.topics import IPIP, IPV6, POOLS, topic_of
from lab.scenario.versions import unsupported

CONFIGURATION = FileKind(
    noun="configuration",
    language=YAML_LANGUAGE,
    absent="check the path",
    large="keep only the objects of the cluster's network",
    entries={},
)
_APART = re.compile(r"^---(?=\s|$).*$", re.MULTILINE)
_HOLDS_TEXT = re.compile(r"^[ \t]*[^\s#]", re.MULTILINE)
_PROXY_MODES = {"iptables": "iptables", "nftables": "nftables"}
_DEFAULT_PROXY_MODE = "iptables"
"""Of kube-proxy on Linux, with kind and with kubeadm."""
_FLANNEL_VNI, _FLANNEL_PORT = 1, 8472
"""Of flannel's VXLAN on Linux; the port is the kernel's default."""
_CALICO_BLOCK = 26
_CALICO_POOL = IPv4Network("192.168.0.0/16")


@dataclass(frozen=True, slots=True)
class Conversion:
    """A draft, and how it differs from the file that it was begun from."""

    draft: ScenarioDraft
    left_out: tuple[str, ...]
    """What the draft does not say: a key with its value and what is nearest, or an object."""
    chosen: tuple[str, ...]
    """What the file does not say."""


@dataclass(slots=True)
class _Object:
    """An object of the file, and which of its keys were read."""

    kind: str
    document: Document = field(default_factory=Document)
    read: dict[Key, bool] = field(default_factory=dict)
    """Every key that was looked at, and whether the draft has its value."""
    reasons: dict[Key, str] = field(default_factory=dict)
    """Why keys are left out that are not simply unknown."""
    defaults: tuple[str, ...] = ()
    """Defaults of the tool that are left out too, each with the reason."""

    def at(self, key: Key) -> object:
        """The value at a key, which counts as read; None if there is none."""
        self.read[key] = True
        return self.document.at(key)

    def text(self, key: Key) -> str:
        """The text of a scalar, which counts as read; empty if there is none."""
        self.read[key] = True
        return self.document.texts.get(key, "")

    def number(self, key: Key) -> int | None:
        """The whole number at a key; None if there is none."""
        text = self.document.texts.get(key, "")
        self.read[key] = re.fullmatch("[0-9]{1,9}", text) is not None
        return int(text) if self.read[key] else None

    def choice(self, key: Key, meanings: Mapping[str, str]) -> str:
        """What the text at a key means; empty, and left out, if it means nothing here."""
        text = self.document.texts.get(key, "")
        self.read[key] = text in meanings
        return meanings.get(text, "")

    def length(self, key: Key) -> int:
        """The number of entries of the list at a key; 0 if there is none."""
        value = self.document.at(key)
        return len(value) if isinstance(value, list) else 0

    def leave_out(self, key: Key, reason: str) -> None:
        """List a key with this reason."""
        self.read[key] = False
        self.reasons[key] = reason

    def left_out(self) -> Iterator[str]:
        """A line for every key that was not read."""
        yield from self.defaults
        for key in _list_unread(self.document.value, (), self.read):
            text = self.document.texts.get(key)
            path = "".join(self._step(key[:length]) for length in range(1, len(key) + 1))
            line = f"{self.kind}{path}" + ("" if text is None else f" {quoted(text)}")
            topic = topic_of(str(key[-1])) or topic_of(text or "")
            reason = self.reasons.get(key) or (topic.answer if topic else "")
            yield f"{line}: {reason}" if reason else line

    def _step(self, key: Key) -> str:
        """The last part of a key; an entry of a list by its name or range, if it has one."""
        if not isinstance(key[-1], int):
            return f".{key[-1]}"
        texts = self.document.texts
        return f"[{texts.get((*key, 'name')) or texts.get((*key, 'cidr'), '')}]"


def _list_unread(tree: object, key: Key, read: Mapping[Key, bool]) -> Iterator[Key]:
    """The keys that were not read: the shortest in which nothing was looked at."""
    children: dict[str | int, object] = {}
    if isinstance(tree, (dict, list)):
        children = dict(tree.items() if isinstance(tree, dict) else enumerate(tree))
    for name, child in children.items():
        inner = (*key, name)
        if inner not in read and any(other[: len(inner)] == inner for other in read):
            yield from _list_unread(child, inner, read)
        elif not read.get(inner):
            yield inner


def convert(  # noqa: PLR0913  the options of the command
    raw: bytes,
    file: str,
    name: str,
    *,
    topology: str | None = None,
    linux: int | None = None,
    windows: int = 0,
) -> Conversion:
    """Begin a draft from the bytes of a file.

    ``file``: its name, for messages. ``topology`` and ``linux``, which counts the control plane
    too: what the user asks for, or None. ``windows``: number of Windows nodes to add.

    Raises UsageError when no scenario can begin from the file, or when the file says already what
    the user asks for.
    """
    action = f"beginning scenario '{name}' from '{file}'"
    tool = foreign.recognise(raw)
    if tool is None or not tool.begins:
        message = f"this is {tool.name}" if tool else "it is not a file of a tool that is known"
        names = ", ".join(known.name for known in foreign.FILES if known.begins)
        raise UsageError(action, message, tool.way if tool else f"give one of: {names}")
    objects = tuple(_read_objects(raw, action))
    begun, used = _CONVERTERS[tool](ScenarioDraft(name, (), kind="", source=quoted(file)), objects)
    _refuse_twice(action, {"--topology": (topology, begun.kind), "--linux": (linux, begun.nodes)})
    chosen = []
    if not begun.kind and topology is None:
        chosen.append("topology overlay (--topology)")
    if not begun.nodes and linux is None:
        chosen.append("2 Linux nodes (--linux)")
    further = draft_nodes(linux or 2, windows)
    draft = replace(
        begun,
        kind=begun.kind or topology or "overlay",
        nodes=(*begun.nodes, further[-1]) if begun.nodes else further,
    )
    left_out = [line for resource in used for line in resource.left_out()]
    left_out += [
        _name_resource(resource)
        for resource in objects
        if not any(resource is other for other in used)
    ]
    return Conversion(draft, tuple(dict.fromkeys(left_out)), tuple(chosen))


def _refuse_twice(action: str, options: Mapping[str, tuple[object, object]]) -> None:
    """Refuse an option that the file sets, too."""
    for option, (given, in_file) in options.items():
        if given is not None and in_file:
            shown = f" to {quoted(in_file)}" if isinstance(in_file, str) else ""
            raise UsageError(action, f"the file already sets it{shown}", f"leave {option} out")


def _read_objects(raw: bytes, action: str) -> Iterator[_Object]:
    """Each object of the file.

    Raises UsageError when it is not YAML, or has what scenario files cannot have either.
    """
    try:
        text = source.decode(raw, CONFIGURATION)
    except source.StopError as stop:
        raise UsageError(action, stop.finding.what, stop.finding.hint) from None
    marks = [*_APART.finditer(text)]
    starts = [0, *(mark.end() for mark in marks)]
    ends = [*(mark.start() for mark in marks), len(text)]
    for start, end in zip(starts, ends, strict=True):
        if _HOLDS_TEXT.search(text, start, end):
            above = "\n" * text.count("\n", 0, start)  # so that lines have their numbers
            document = _read_document(above + text[start:end], action)
            resource = _Object(document.texts.get(("kind",), "object"), document)
            resource.read |= {("apiVersion",): True, ("kind",): True, ("metadata",): True}
            yield resource


def _read_document(text: str, action: str) -> Document:
    document, findings = source.parse(text.encode(), CONFIGURATION)
    if document is None or findings:
        finding = findings[0]
        place = f"line {finding.line}: " if finding.line else ""
        raise UsageError(action, f"{place}{finding.what}", finding.hint)
    return document


def _of_kind(objects: tuple[_Object, ...], kind: str) -> _Object:
    """The first object of a kind, or an empty one."""
    return next((resource for resource in objects if resource.kind == kind), _Object(kind))


def _name_resource(resource: _Object) -> str:
    name = resource.document.texts.get(("metadata", "name"))
    return f"{resource.kind} {quoted(name)}" if name else resource.kind


def _read_range(resource: _Object, key: Key) -> IPv4Network | None:
    """The first IPv4 range at a key of text, one range or several with commas."""
    texts = [part.strip() for part in resource.text(key).split(",") if part.strip()]
    networks = [network for text in texts if (network := _network(text))]
    if len(texts) > len(networks):
        reason = IPV6.answer if any(":" in text for text in texts) else "this is not an IPv4 range"
        resource.leave_out(key, f"{reason}; {networks[0]} is kept" if networks else reason)
    elif len(networks) > 1:
        resource.leave_out(key, f"{POOLS.answer}; {networks[0]} is kept")
    return networks[0] if networks else None


def _network(text: str) -> IPv4Network | None:
    try:
        return IPv4Network(text, strict=False)
    except ValueError:
        return None


def _with_version(draft: ScenarioDraft, resource: _Object, key: Key) -> ScenarioDraft:
    """The draft with the Kubernetes minor at a key: ``v1.34.1``, or the tag of an image."""
    text = resource.text(key)
    minor = re.search(r"(?:^|:)v?(1\.[0-9]{1,3})(?:\.|@|$)", text)
    if not text:
        return draft
    if minor is None:
        resource.leave_out(key, f"this names no minor; {draft.version} is kept")
    elif why := unsupported(minor[1]):
        resource.leave_out(key, f"Kubernetes {minor[1]} {why}; {draft.version} is kept")
    else:
        return replace(draft, version=minor[1])
    return draft


def _from_kind(
    draft: ScenarioDraft, objects: tuple[_Object, ...]
) -> tuple[ScenarioDraft, tuple[_Object, ...]]:
    cluster = _of_kind(objects, "Cluster")
    cluster.text(("name",))
    own_cni = cluster.at(("networking", "disableDefaultCNI")) is True
    cluster.choice(("networking", "ipFamily"), {"ipv4": "ipv4"})
    mode = cluster.choice(("networking", "kubeProxyMode"), _PROXY_MODES)
    draft = replace(
        draft,
        kind="" if own_cni else "host-gateway",  # kindnet routes to the other nodes' pods
        kubernetes={"proxy_mode": mode or _DEFAULT_PROXY_MODE},
        nodes=tuple(_kind_nodes(cluster)),
        pod_cidr=_read_range(cluster, ("networking", "podSubnet")) or draft.pod_cidr,
        service_cidr=_read_range(cluster, ("networking", "serviceSubnet")) or draft.service_cidr,
    )
    for index in range(cluster.length(("nodes",))):
        draft = _with_version(draft, cluster, ("nodes", index, "image"))
    return draft, (cluster,)


def _kind_nodes(cluster: _Object) -> Iterator[NodeDraft]:
    count = cluster.length(("nodes",))
    meanings = {"": "control-plane", "control-plane": "control-plane", "worker": "worker"}
    roles = [cluster.choice(("nodes", index, "role"), meanings) for index in range(count)]
    control_planes = roles.count("control-plane") or 1
    yield NodeDraft("control-plane", "linux", control_planes, "control-plane")
    yield NodeDraft("worker", "linux", roles.count("worker"))
    if control_planes > 1:  # kind has HAProxy in front of several
        yield NodeDraft("balancer", "linux", role="services")


def _from_kubeadm(
    draft: ScenarioDraft, objects: tuple[_Object, ...]
) -> tuple[ScenarioDraft, tuple[_Object, ...]]:
    cluster = _of_kind(objects, "ClusterConfiguration")
    proxy = _of_kind(objects, "KubeProxyConfiguration")
    cluster.text(("clusterName",))
    mode = proxy.choice(("mode",), {"": _DEFAULT_PROXY_MODE, **_PROXY_MODES})
    domain = cluster.text(("networking", "dnsDomain"))
    pods = _read_range(cluster, ("networking", "podSubnet")), _read_range(proxy, ("clusterCIDR",))
    draft = replace(
        draft,
        kubernetes={
            **({"domain": domain} if domain else {}),
            "proxy_mode": mode or _DEFAULT_PROXY_MODE,
        },
        node_prefix=_mask_size(cluster),
        pod_cidr=pods[0] or pods[1] or draft.pod_cidr,
        service_cidr=_read_range(cluster, ("networking", "serviceSubnet"))
        or IPv4Network("10.96.0.0/12"),
    )
    return _with_version(draft, cluster, ("kubernetesVersion",)), (cluster, proxy)


def _mask_size(cluster: _Object) -> int | None:
    """The controller manager's ``node-cidr-mask-size``: in a mapping up to v1beta3, then a list."""
    arguments: Key = ("controllerManager", "extraArgs")
    for index in range(cluster.length(arguments)):
        if cluster.document.texts.get((*arguments, index, "name")) == "node-cidr-mask-size":
            cluster.text((*arguments, index, "name"))
            return cluster.number((*arguments, index, "value"))
    return cluster.number((*arguments, "node-cidr-mask-size"))


def _from_flannel(
    draft: ScenarioDraft, objects: tuple[_Object, ...]
) -> tuple[ScenarioDraft, tuple[_Object, ...]]:
    key: Key = ("data", "net-conf.json")
    config = next(
        (resource for resource in objects if key in resource.document.texts), _Object("ConfigMap")
    )
    config.text(("data", "cni-conf.json"))
    action = f"reading net-conf.json of {draft.source}"
    text = config.text(key).replace("\t", " ")  # of JSON, whose tabs YAML does not always allow
    if not text.lstrip().startswith("{"):
        raise UsageError(action, "it is not a JSON object", 'begin it with "{"')
    flannel = _Object("net-conf.json", _read_document(text, action))
    backend = flannel.choice(("Backend", "Type"), {"vxlan": "overlay", "host-gw": "host-gateway"})
    parameters: dict[str, object] = {}
    if backend == "overlay":
        parameters["vni"] = flannel.number(("Backend", "VNI")) or _FLANNEL_VNI
        parameters["port"] = flannel.number(("Backend", "Port")) or _FLANNEL_PORT
        if flannel.at(("Backend", "DirectRouting")) is True:
            parameters["direct_routing"] = True
    draft = replace(
        draft,
        kind=backend,
        parameters=parameters,
        pod_cidr=_read_range(flannel, ("Network",)) or draft.pod_cidr,
        node_prefix=flannel.number(("SubnetLen",)),
    )
    return draft, (config, flannel)


def _from_calico(
    draft: ScenarioDraft, objects: tuple[_Object, ...]
) -> tuple[ScenarioDraft, tuple[_Object, ...]]:
    calico = _of_kind(objects, "Installation")
    network: Key = ("spec", "calicoNetwork")
    pools: Key = (*network, "ipPools")
    count = calico.length(pools)
    cidrs = [calico.document.texts.get((*pools, number, "cidr"), "") for number in range(count)]
    first = next((number for number, cidr in enumerate(cidrs) if ":" not in cidr), 0)
    for number, cidr in enumerate(cidrs):
        if number != first:
            topic = IPV6 if ":" in cidr else POOLS
            calico.leave_out((*pools, number), topic.answer)
    pool: Key = (*pools, first)
    direct = "host-gateway" if calico.text((*network, "bgp")) == "Disabled" else "calico-bgp"
    encapsulation: Key = (*pool, "encapsulation")
    if encapsulation not in calico.document.texts:
        calico.defaults = (f"encapsulation IPIP, the operator's default: {IPIP.answer}",)
    kind = calico.choice(
        encapsulation,
        {
            "VXLAN": "calico-vxlan",
            # on one node network every node is in the same subnet, and nothing is encapsulated
            "VXLANCrossSubnet": direct,
            "IPIPCrossSubnet": direct,
            "None": direct,
        },
    )
    for key, default in (
        ((*pool, "natOutgoing"), "Enabled"),
        ((*pool, "nodeSelector"), "all()"),
        ((*network, "linuxDataplane"), "Iptables"),
        ((*network, "windowsDataplane"), "HNS"),
        (("spec", "variant"), "Calico"),
    ):
        calico.choice(key, {default: default})
    draft = replace(
        draft,
        kind=kind or "calico-bgp",
        pod_cidr=_read_range(calico, (*pool, "cidr")) or _CALICO_POOL,
        node_prefix=calico.number((*pool, "blockSize")) or _CALICO_BLOCK,
        service_cidr=_read_range(calico, ("spec", "serviceCIDRs", 0)) or draft.service_cidr,
    )
    return draft, (calico,)


_Converter = Callable[
    [ScenarioDraft, tuple[_Object, ...]], tuple[ScenarioDraft, tuple[_Object, ...]]
]
_CONVERTERS: Mapping[ForeignFile, _Converter] = {
    foreign.KIND: _from_kind,
    foreign.KUBEADM: _from_kubeadm,
    foreign.FLANNEL: _from_flannel,
    foreign.CALICO: _from_calico,
}
