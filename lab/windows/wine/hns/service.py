"""What HNS answers, and what it keeps then. Pure: questions and answers are data.

A question is a call of an Hcn* function or of HNSCall (``standins/hns.c``). Documents are kept as
they came, in version 2, so that a caller reads back what it wrote.

Habits that are documented of Windows' HNS, each with its source:

- a network without the name of a card takes a card that is in no virtual switch yet
  (MicrosoftDocs/Virtualization-Documentation, PR 595, by an author of HNS);
- a card's virtual name, ``vEthernet (...)``, is refused (0x80070057, microsoft/SDN 269);
- a network with the flag NonPersistent is gone after a restart of the machine (hcsshim,
  ``EnableNonPersistent``).

Those that only some machines have are :data:`HABITS`, off until a question switches one on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Interface, IPv4Network
from typing import Any

from lab.windows.wine.hns import documents
from lab.windows.wine.hns.documents import Document

KINDS = ("networks", "endpoints", "namespaces", "loadbalancers", "routes")
_INVALID = 0x80070057
_NOT_FOUND = 0x80070490
_ADAPTER_NOT_FOUND = 0x803B0006
_UNSUPPORTED = 0x803B0015
_MISSING = {"networks": 0x803B0001, "endpoints": 0x803B0002}
"""HRESULTs of hcnerror.h (hcsshim, hcn/hcnerrors.go)."""
_VERSIONS = {17763: (9, 5), 20348: (13, 3), 26100: (15, 5)}
"""HNS' version of each Windows build; features depend on it (hcsshim, hcn/hcnglobals.go)."""
NETWORKS_LOST = "networks-lost"
OTHER_CARD = "other-card"
ATTACH_REFUSED = "attach-refused"
BALANCERS_KEPT = "balancers-kept"
BALANCERS_REFUSED = "balancers-refused"
DSR_IGNORED = "dsr-ignored"
HABITS: Mapping[str, str] = {
    NETWORKS_LOST: "a restart of the service loses every network, with its endpoints "
    "(projectcalico/calico 5164, Azure/azure-container-networking 283)",
    OTHER_CARD: "a network gets another card than the one that it names "
    "(Azure/azure-container-networking 4439, rancher/rke2 3533)",
    ATTACH_REFUSED: "an endpoint cannot be attached to a pod (containerd/containerd 5729, "
    "projectcalico/felix 2893)",
    BALANCERS_KEPT: "a load balancer cannot be deleted, and goes before a later one for the same "
    "address (kubernetes/kubernetes 113524, 112836)",
    BALANCERS_REFUSED: "no load balancer can be made: the port is said to exist "
    "(kubernetes/kubernetes 137530, microsoft/hcsshim 1043)",
    DSR_IGNORED: "Direct Server Return is taken and not done (kubernetes/kubernetes 93304, "
    "microsoft/Windows-Containers 79)",
}
"""Habits by name: what they are, and their sources."""
_INVALID_STATE = 0x803B0017
_PORT_EXISTS = 0x803B0013
_FAILED = 0x80004005
_FIRST_FREE = 100
"""Offset of the first address that HNS gives an endpoint that names none."""


@dataclass(frozen=True, slots=True)
class Card:
    """A network card of the node."""

    name: str
    address: str
    """With prefix length; empty if it has none."""
    mac: str
    mtu: int


UNUSED_CARD = Card("ethernet2", "169.254.83.107/16", "00:15:5d:53:6b:02", 1500)
"""What a node with one card gets for :data:`OTHER_CARD`: nothing is connected to it."""


@dataclass(frozen=True, slots=True)
class HnsState:
    """Everything that HNS knows."""

    build: int
    """Windows' build number."""
    cards: tuple[Card, ...]
    objects: Mapping[str, Mapping[str, Document]] = field(default_factory=dict)
    """By kind, then by GUID in lower case."""
    spaces: Mapping[str, str] = field(default_factory=dict)
    """Name of the Linux network namespace by a namespace's GUID."""
    hosted: tuple[str, ...] = ()
    """GUIDs of endpoints that are attached to the node itself."""
    habits: frozenset[str] = frozenset()
    """Those of :data:`HABITS` that are switched on."""

    def of(self, kind: str) -> Mapping[str, Document]:
        """The objects of one kind by GUID."""
        return self.objects.get(kind, {})

    def with_object(self, kind: str, guid: str, document: Document) -> HnsState:
        """The state with one object added or replaced."""
        kept = {**self.of(kind), guid: document}
        return replace(self, objects={**self.objects, kind: kept})

    def without(self, kind: str, guid: str) -> HnsState:
        """The state without one object."""
        kept = {key: value for key, value in self.of(kind).items() if key != guid}
        return replace(self, objects={**self.objects, kind: kept})


@dataclass(frozen=True, slots=True)
class Question:
    """One call."""

    operation: str
    """``create``, ``enumerate``, ``open``, ``modify``, ``query``, ``delete``, ``call`` (HNSCall),
    or ``bind``, by which the CNI plugin of Linux names a pod's network namespace."""
    object: str
    """``networks GUID``; of ``call``, ``GET /networks/``."""
    document: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call returns."""

    code: int = 0
    """HRESULT; 0 is success."""
    guid: str = ""
    document: str = ""


class RefusalError(Exception):
    """HNS refuses: code and words."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


def answer(state: HnsState, question: Question, new_guid: str) -> tuple[HnsState, Answer]:
    """The state after a question, and its answer.

    ``new_guid``: the GUID of an object that the question creates.
    """
    operation = _OPERATIONS.get(question.operation)
    if operation is None:
        words = f"there is no operation '{question.operation}'"
        return state, _refused(question.operation, _UNSUPPORTED, words)
    try:
        given = json.loads(question.document) if question.document.strip() else {}
        return operation(state, question.object.split(), given, new_guid.lower())
    except RefusalError as error:
        return state, _refused(question.operation, error.code, str(error))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        return state, _refused(question.operation, _INVALID, f"malformed document: {error!r}")


def _refused(operation: str, code: int, words: str) -> Answer:
    document = json.dumps({"Success": False, "Error": words, "ErrorCode": code})
    return Answer(0 if operation == "call" else code, "", document)


def _find(state: HnsState, kind: str, guid: str) -> Document:
    if kind not in KINDS:
        raise RefusalError(_UNSUPPORTED, f"there is no kind of object '{kind}'")
    document = state.of(kind).get(guid.lower())
    if document is None:
        raise RefusalError(_MISSING.get(kind, _NOT_FOUND), f"{kind}: there is no '{guid}'")
    return document


def _create(
    state: HnsState, words: list[str], given: dict[str, Any], new: str
) -> tuple[HnsState, Answer]:
    kind = words[0]
    wanted = words[1] if len(words) > 1 and words[1] != "-" else given.get("ID", "")
    guid = str(wanted or new).lower()
    if kind == "networks":
        return _create_network(state, given, guid), Answer(0, guid)
    if kind == "endpoints":
        network = words[2] if len(words) > 2 else given.get("HostComputeNetwork", "")  # noqa: PLR2004  kind, GUID, network
        return _create_endpoint(state, given, guid, str(network).lower()), Answer(0, guid)
    if kind not in KINDS:
        raise RefusalError(_UNSUPPORTED, f"there is no kind of object '{kind}'")
    if kind == "loadbalancers":
        given = _balancer(state, given)
    return state.with_object(kind, guid, {**given, "ID": guid}), Answer(0, guid)


def _balancer(state: HnsState, given: dict[str, Any]) -> dict[str, Any]:
    """A load balancer as it is made."""
    if BALANCERS_REFUSED in state.habits:
        raise RefusalError(_PORT_EXISTS, "The specified port already exists.")
    if DSR_IGNORED in state.habits:
        return {**given, "Flags": int(given.get("Flags") or 0) & ~documents.DSR}
    return given


def _create_network(state: HnsState, given: dict[str, Any], guid: str) -> HnsState:
    card = _choose_card(state, given)
    management = card.address.partition("/")[0]
    more: list[Document] = []
    if str(given.get("Type", "")).lower() == "overlay":
        more = [
            {"Type": "ProviderAddress", "Settings": {"ProviderAddress": management}},
            {"Type": "DrMacAddress", "Settings": {"Address": router_mac(management)}},
        ]
    kept = [
        policy
        for policy in given.get("Policies") or ()
        if policy.get("Type") not in {"DrMacAddress", "ProviderAddress"}
    ]
    document = {
        **given,
        "ID": guid,
        "Policies": [*kept, *more],
        "ManagementIP": management,
        "NetworkAdapterName": card.name,
        "SchemaVersion": documents.SCHEMA,
    }
    return state.with_object("networks", guid, document)


def router_mac(management: str) -> str:
    """The MAC of an overlay's virtual router on one node: Microsoft's prefix, then the address."""
    last = IPv4Interface(management or "0.0.0.0").packed[1:]  # noqa: S104  no card has an address
    return "-".join(("00", "15", "5D", *(f"{byte:02X}" for byte in last)))


def _choose_card(state: HnsState, given: Document) -> Card:
    name = next(
        (
            str(settings.get("NetworkAdapterName", ""))
            for settings in documents.policies(given, "NetAdapterName")
        ),
        "",
    )
    if name.startswith("vEthernet"):
        raise RefusalError(_INVALID, "The parameter is incorrect.")
    others = [card for card in state.cards if card.name != name]
    if OTHER_CARD in state.habits and others:
        return others[-1]
    if name:
        for card in state.cards:
            if card.name == name:
                return card
        raise RefusalError(_ADAPTER_NOT_FOUND, f"An adapter was not found: '{name}'.")
    taken = {network.get("NetworkAdapterName") for network in state.of("networks").values()}
    for card in (*(card for card in state.cards if card.name not in taken), *state.cards):
        return card
    raise RefusalError(_ADAPTER_NOT_FOUND, "The node has no network card.")


def _create_endpoint(
    state: HnsState, given: dict[str, Any], guid: str, network_guid: str
) -> HnsState:
    network = _find(state, "networks", network_guid)
    prefix = documents.subnet(network).get("IpAddressPrefix", "")
    configurations = [each for each in given.get("IpConfigurations") or () if each.get("IpAddress")]
    if not configurations and prefix:
        configurations = [{"IpAddress": _free_address(state, network_guid, prefix)}]
    if not documents.gateway(given):
        given = {**given, "Routes": documents.subnet(network).get("Routes") or ()}
    length = IPv4Network(prefix).prefixlen if prefix else documents.USUAL_LENGTH
    document = {
        **given,
        "ID": guid,
        "HostComputeNetwork": network_guid,
        "IpConfigurations": [{"PrefixLength": length, **each} for each in configurations],
        "MacAddress": given.get("MacAddress") or _free_mac(guid),
        "SchemaVersion": documents.SCHEMA,
    }
    return state.with_object("endpoints", guid, document)


def _free_mac(guid: str) -> str:
    digits = guid.replace("-", "")[:6].upper()
    return "-".join(("00", "15", "5D", digits[:2], digits[2:4], digits[4:6]))


def _free_address(state: HnsState, network_guid: str, prefix: str) -> str:
    taken = {
        documents.address(endpoint)
        for endpoint in state.of("endpoints").values()
        if endpoint["HostComputeNetwork"] == network_guid
    }
    hosts = list(IPv4Network(prefix).hosts())
    ordered = hosts[_FIRST_FREE - 1 :] + hosts[: _FIRST_FREE - 1]
    for host in ordered:
        if str(host) not in taken:
            return str(host)
    raise RefusalError(_INVALID, f"no address of {prefix} is free")


def _enumerate(
    state: HnsState, words: list[str], given: dict[str, Any], _: str
) -> tuple[HnsState, Answer]:
    text = given.get("Filter") or "{}"
    wanted = json.loads(text) if isinstance(text, str) else text
    objects = state.of(words[0]) if words[0] in KINDS else {}
    matching = [guid for guid, document in objects.items() if _matches(document, wanted)]
    return state, Answer(0, "", json.dumps(matching))


_ALIASES = {"VirtualNetwork": "HostComputeNetwork"}


def _matches(document: Document, wanted: Document) -> bool:
    return all(
        str(document.get(_ALIASES.get(key, key), "")).lower() == str(value).lower()
        for key, value in wanted.items()
    )


def _open(state: HnsState, words: list[str], _: Document, __: str) -> tuple[HnsState, Answer]:
    _find(state, words[0], words[1])
    return state, Answer(0, words[1].lower())


def _query(state: HnsState, words: list[str], _: Document, __: str) -> tuple[HnsState, Answer]:
    return state, Answer(0, words[1].lower(), json.dumps(_find(state, words[0], words[1])))


def _delete(state: HnsState, words: list[str], _: Document, __: str) -> tuple[HnsState, Answer]:
    kind, guid = words[0], words[1].lower()
    return _deleted(state, kind, guid), Answer(0, guid)


def _deleted(state: HnsState, kind: str, guid: str) -> HnsState:
    _find(state, kind, guid)
    if kind == "loadbalancers" and BALANCERS_KEPT in state.habits:
        raise RefusalError(_FAILED, "Unspecified error")
    return _removed(state, kind, guid)


def _removed(state: HnsState, kind: str, guid: str) -> HnsState:
    """The state without an object, and without what lies on it or leads to it."""
    state = state.without(kind, guid)
    if kind == "networks":
        for endpoint, document in state.of("endpoints").items():
            if document["HostComputeNetwork"] == guid:
                state = _removed(state, "endpoints", endpoint)
    if kind == "endpoints":
        spaces = {
            space: {**document, "Resources": _without_endpoint(document, guid)}
            for space, document in state.of("namespaces").items()
        }
        hosted = tuple(each for each in state.hosted if each != guid)
        objects = {**state.objects, "namespaces": spaces}
        state = replace(state, objects=objects, hosted=hosted)
    if kind == "networks":
        state = with_cards(state, state.cards)
    if kind == "namespaces":
        left = {key: value for key, value in state.spaces.items() if key != guid}
        state = replace(state, spaces=left)
    return state


def _without_endpoint(namespace: Document, guid: str) -> list[Document]:
    resources = namespace.get("Resources") or ()
    return [each for each in resources if str(each["Data"].get("ID", "")).lower() != guid]


def _modify(
    state: HnsState, words: list[str], given: dict[str, Any], _: str
) -> tuple[HnsState, Answer]:
    kind, guid = words[0], words[1].lower()
    document = _find(state, kind, guid)
    settings = given.get("Settings") or {}
    request, resource = given.get("RequestType", "Add"), given.get("ResourceType", "")
    if kind == "loadbalancers" and not resource:  # kube-proxy's update has the whole object
        state = state.with_object(kind, guid, {**given, "ID": guid})
    elif resource == "Policy":
        changed = _change_policies(document, request, settings.get("Policies") or ())
        state = state.with_object(kind, guid, {**document, "Policies": changed})
    elif kind == "namespaces" and resource == "Endpoint":
        state = _change_namespace(state, guid, request, settings)
    elif kind == "namespaces" and resource == "Container":
        pass  # which container is in it changes no packet
    else:
        raise RefusalError(_UNSUPPORTED, f"{kind}: '{request}' of '{resource}' is not known")
    return state, Answer(0, guid)


def _change_policies(
    document: Document, request: str, changes: list[Document] | tuple[Document, ...]
) -> list[Document]:
    before = list(document.get("Policies") or ())
    if request == "Remove":
        return [policy for policy in before if policy not in changes]
    if request == "Update":
        kinds = {policy.get("Type") for policy in changes}
        before = [policy for policy in before if policy.get("Type") not in kinds]
    return before + [policy for policy in changes if policy not in before]


def _change_namespace(state: HnsState, guid: str, request: str, settings: Document) -> HnsState:
    named = [value for name, value in settings.items() if name.lower() in {"endpointid", "id"}]
    endpoint = str(named[0]).lower()
    namespace = state.of("namespaces")[guid]
    resources = _without_endpoint(namespace, endpoint)
    if request == "Add":
        if ATTACH_REFUSED in state.habits:
            raise RefusalError(
                _INVALID_STATE, "The requested operation for attach namespace failed."
            )
        own = _find(state, "endpoints", endpoint)
        resources.append({"Type": "Endpoint", "Data": {"ID": endpoint}})
        state = state.with_object("endpoints", endpoint, {**own, "HostComputeNamespace": guid})
    elif (left := state.of("endpoints").get(endpoint)) is not None:
        state = state.with_object("endpoints", endpoint, {**left, "HostComputeNamespace": ""})
    return state.with_object("namespaces", guid, {**namespace, "Resources": resources})


def _bind(
    state: HnsState, words: list[str], given: dict[str, Any], _: str
) -> tuple[HnsState, Answer]:
    guid = words[1].lower()
    document = {"ID": guid, "Type": "Guest", "Resources": [], "SchemaVersion": documents.SCHEMA}
    if guid not in state.of("namespaces"):
        state = state.with_object("namespaces", guid, document)
    return replace(state, spaces={**state.spaces, guid: str(given["Netns"])}), Answer(0, guid)


def _call(
    state: HnsState, words: list[str], given: dict[str, Any], new: str
) -> tuple[HnsState, Answer]:
    """HNSCall: version 1, ``GET /networks/GUID``."""
    method, parts = words[0], words[1].strip("/").split("/")
    parts[0] = _VERSION_1_KINDS.get(parts[0], parts[0])
    if parts[0] == "globals":
        version = dict(zip(("Major", "Minor"), _VERSIONS.get(state.build, (13, 3)), strict=True))
        output: Any = version if parts[-1] == "version" else {"Version": version}
    elif method == "GET":
        output = _read_version_1(state, parts)
    elif method == "DELETE":
        state, output = _deleted(state, parts[0], parts[1].lower()), {}
    elif parts[0] == "habits":
        state, output = _switched(state, parts[1], on=bool(given.get("On"))), {}
    elif parts[0] == "restart":
        state, output = after_service_restart(state), {}
    elif len(parts) > 2:  # noqa: PLR2004  kind, GUID, verb
        state = _attach(state, parts[1].lower(), parts[2])
        output = _read_version_1(state, parts[:2])
    elif len(parts) > 1:
        document = _find(state, parts[0], parts[1])
        state = state.with_object(parts[0], parts[1].lower(), {**document, **given})
        output = _read_version_1(state, parts)
    elif parts[0] == "networks":
        made = documents.network_from_version_1(given)
        state = _create_network(state, made, new)
        output = _read_version_1(state, ["networks", new])
    elif parts[0] == "endpoints":
        made = documents.endpoint_from_version_1(given)
        state = _create_endpoint(state, made, new, str(made["HostComputeNetwork"]).lower())
        output = _read_version_1(state, ["endpoints", new])
    else:
        raise RefusalError(_UNSUPPORTED, f"'{method} {words[1]}' is not known")
    return state, Answer(0, "", json.dumps({"Success": True, "Output": output}))


def _read_version_1(state: HnsState, parts: list[str]) -> Any:
    kind = parts[0]
    if len(parts) > 1:
        return _to_version_1(state, kind, _find(state, kind, parts[1]))
    if kind not in KINDS:
        raise RefusalError(_UNSUPPORTED, f"there is no kind of object '{kind}'")
    return [_to_version_1(state, kind, document) for document in state.of(kind).values()]


_VERSION_1_KINDS = {"policylists": "loadbalancers"}
"""What version 1 calls some kinds."""


def _to_version_1(state: HnsState, kind: str, document: Document) -> Document:
    if kind == "networks":
        return documents.network_to_version_1(document)
    if kind == "endpoints":
        network = state.of("networks").get(document["HostComputeNetwork"], {})
        return documents.endpoint_to_version_1(document, network)
    if kind == "loadbalancers":
        return documents.policy_list(str(document["ID"]), document)
    return document


def _attach(state: HnsState, guid: str, verb: str) -> HnsState:
    """Attach an endpoint to the node itself, or detach it."""
    _find(state, "endpoints", guid)
    others = tuple(each for each in state.hosted if each != guid)
    return replace(state, hosted=(*others, guid) if verb == "attach" else others)


def _switched(state: HnsState, habit: str, *, on: bool) -> HnsState:
    """The state with a habit switched on or off."""
    if habit not in HABITS:
        raise RefusalError(_UNSUPPORTED, f"'{habit}' is none of {', '.join(HABITS)}")
    habits = state.habits | {habit} if on else state.habits - {habit}
    return with_cards(replace(state, habits=habits), state.cards)


def with_cards(state: HnsState, cards: tuple[Card, ...]) -> HnsState:
    """The state with these cards, and the unused one as long as that is asked for or used."""
    own = tuple(card for card in cards if card != UNUSED_CARD)
    used = {network.get("NetworkAdapterName") for network in state.of("networks").values()}
    wanted = UNUSED_CARD.name in used or (OTHER_CARD in state.habits and len(own) == 1)
    return replace(state, cards=(*own, UNUSED_CARD) if wanted else own)


Operation = Callable[[HnsState, list[str], dict[str, Any], str], tuple[HnsState, Answer]]
_OPERATIONS: Mapping[str, Operation] = {
    "create": _create,
    "enumerate": _enumerate,
    "open": _open,
    "query": _query,
    "modify": _modify,
    "delete": _delete,
    "bind": _bind,
    "call": _call,
}


def after_restart(state: HnsState) -> HnsState:
    """The state once the machine has restarted: no pods, and no network that is not persistent."""
    for guid in tuple(state.of("namespaces")):
        state = _removed(state, "namespaces", guid)
    for guid, document in state.of("networks").items():
        if int(document.get("Flags") or 0) & documents.NON_PERSISTENT:
            state = _removed(state, "networks", guid)
    for guid in tuple(state.of("loadbalancers")):
        state = _removed(state, "loadbalancers", guid)
    return state


def after_service_restart(state: HnsState) -> HnsState:
    """The state once the service has restarted, the machine not."""
    if NETWORKS_LOST not in state.habits:
        return state
    for kind in ("networks", "loadbalancers"):
        for guid in tuple(state.of(kind)):
            state = _removed(state, kind, guid)
    return state
