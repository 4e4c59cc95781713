"""The node's translations: Services to backends, and pods' packets that leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, collapse_addresses
from typing import NamedTuple

from lab.explain.check import (
    HNS_ENDPOINTS,
    NEW_LAB,
    REMOVE_POLICIES,
    Check,
    Kind,
    Look,
    OnWindows,
    at_services,
)
from lab.facts.difference import Difference
from lab.facts.translations import End, Translated, within
from lab.scenario.terms import ServicePort
from lab.topology import proxying
from lab.topology.intent import ProxiedService, Translation
from lab.topology.path import Hop, Path
from lab.topology.routing import covers
from lab.topology.subject import EntranceSubject, LeavingSubject, ServiceSubject

_SHOWS = {
    "lab": "nft list table ip kube-proxy",
    "nftables": "nft list table ip kube-proxy",
    "iptables": "iptables-save -t nat",
    "": "nft list table ip kube-proxy; iptables-save -t nat",
}
_AGAIN = {
    "lab": NEW_LAB,
    "kubernetes": (
        "restart kube-proxy on this node; fix what its log complains of first; "
        "then kubectl get endpointslices"
    ),
}
_STRANDED = (
    "none of them: kube-proxy has chains for them, but no map leads there (where nft finds no "
    "/etc/protocols in its image, kube-proxy empties the maps when it restarts over its own "
    "rules, and every hour)"
)
_STRANDED_SHOWS = (
    "nft list map ip kube-proxy service-ips; ls -l /proc/$(pgrep -xo kube-proxy)/root/etc/protocols"
)
_END_PROXY = "pkill -x kube-proxy"
"""The kubelet or systemd restarts it at once, and it fills empty maps."""
_LEAVING_SHOWS = {
    "lab": "nft list chain ip kube-proxy nat-postrouting",
    "kubernetes": "nft list ruleset | grep -B 3 masquerade; iptables-save -t nat | grep MASQ",
}
_HNS_POLICIES = OnWindows(
    "Get-HnsPolicyList | ConvertTo-Json -Depth 5",
    f"Stop-Service -Name kube-proxy; {REMOVE_POLICIES}; Start-Service -Name kube-proxy",
)
_REFUSED = replace(_HNS_POLICIES, fault="hns-balancers-refused")
"""Where kube-proxy runs and HNS has no load balancer of it."""
_Key = tuple[str, str | None, int]


def _at_entrance(difference: Difference, hop: Hop, path: Path) -> bool:
    """Where a packet is for the same address and port, with the same protocol."""
    entrance, flow = difference.subject, path.flow
    return (
        at_services(difference, hop, path)
        and isinstance(entrance, EntranceSubject)
        and hop.subject == ServiceSubject(entrance.service)
        and entrance.is_asked_by(flow.target, flow.port, flow.protocol)
    )


def _at_masquerade(difference: Difference, hop: Hop, _: Path) -> bool:
    here = hop.kind == "masquerade" and hop.machine == difference.node
    return here and difference.subject == hop.subject


def _at_exception(difference: Difference, hop: Hop, _: Path) -> bool:
    """They are masqueraded on a bridge, too."""
    if hop.kind not in {"route", "bridge"} or hop.machine != difference.node or hop.packet.answer:
        return False
    leaving, packet = difference.subject, hop.carried or hop.packet
    return (
        isinstance(leaving, LeavingSubject)
        and covers(leaving.source, packet.source)
        and covers(leaving.target, packet.target)
    )


@dataclass(frozen=True, slots=True)
class _Entrance:
    """One address and port of a Service: its own, or a node port (without address)."""

    service: ProxiedService
    port: ServicePort
    address: str | None

    @property
    def number(self) -> int:
        """The port of the packets."""
        return self.port.port if self.address else self.port.node_port or 0

    def list_keys(self) -> tuple[_Key, ...]:
        """The keys under which it may be observed."""
        return tuple((protocol, self.address, self.number) for protocol in self.port.protocols)

    def ends(self, node: str) -> set[End]:
        """The intended backends of its packets on that node."""
        choose = proxying.inside if self.address else proxying.outside
        return {
            End(backend.address, self.port.target_port) for backend in choose(self.service, node)
        }


def _no_services(services: Mapping[_Key, Translated]) -> str:
    return "none of them is" if services else "nothing is translated at all"


def _runs_proxy(look: Look) -> bool:
    """Whether kube-proxy is a service that runs, so that it has asked for load balancers."""
    units = look.observed.units
    return any((unit.name, unit.state) == ("kube-proxy", "Running") for unit in units)


def _again(look: Look, kind: str) -> str:
    """The command that makes Services work again."""
    if kind == "service-missing" and look.observed.translations.stranded:
        return _END_PROXY
    return _AGAIN[look.by]


def _knows(look: Look) -> bool:
    observed = look.observed
    if any(unread.part.startswith("iptables") for unread in observed.unread):
        return False
    return observed.knows("nftables") or (
        observed.knows("iptables") and bool(observed.translations.by)
    )


def _wanted(services: Iterable[ProxiedService]) -> Iterator[_Entrance]:
    """Each port of each Service, first at its address, then as NodePort."""
    for service in services:
        for port in service.ports:
            yield _Entrance(service, port, service.address)
            if port.node_port is not None:
                yield _Entrance(service, port, None)


def _service(
    look: Look, entrance: _Entrance, services: Mapping[_Key, Translated]
) -> Iterator[Difference]:
    """One entrance of a Service; the same difference in TCP and UDP is reported once."""
    if not entrance.ends(look.intended.name) and look.observed.os == "windows":
        return  # on Windows, kube-proxy makes no load balancer without backends
    protocols_of: dict[_Mismatch, list[str]] = {}
    for key in entrance.list_keys():
        mismatch = _find_mismatch(look, entrance, services.get(key))
        if mismatch:
            protocols_of.setdefault(mismatch, []).append(key[0])
    for mismatch, protocols in protocols_of.items():
        yield look.differs(
            mismatch.kind,
            EntranceSubject(
                entrance.service.name, entrance.address, entrance.number, tuple(protocols)
            ),
            mismatch.intended,
            mismatch.observed,
            _SHOWS.get(look.observed.translations.by, ""),
            _again(look, mismatch.kind),
            attribute="" if mismatch.ends is None else "backends",
            change="gone" if mismatch.ends == () else "changed",
            values=mismatch.ends or (),
        )


class _Mismatch(NamedTuple):
    """A difference of one entrance."""

    kind: str
    intended: str
    observed: str
    ends: tuple[str, ...] | None = None
    """The backends that are seen, if these differ."""


def _find_mismatch(look: Look, entrance: _Entrance, actual: Translated | None) -> _Mismatch | None:
    """The first difference.

    HNS reports only the backends, and an emulated Windows node follows Windows' rules.
    """
    intended = entrance.ends(look.intended.name)
    backends = set(actual.backends if actual else ())
    if actual and actual.behind is not None and backends != intended:
        behind = f"another load balancer, to {_ends(actual.behind)}, comes after it"
        return _Mismatch(
            "balancer-kept", f"to {_ends(intended)}", f"to {_ends(backends)}; {behind}"
        )
    if backends < intended and {end.address for end in intended - backends} <= look.lost_ends:
        return None
    if actual is None:
        return _Mismatch("service-missing", f"to {_ends(intended)}", "not translated")
    if backends != intended:
        kind: str = "stale-backend" if backends - intended else "backend-missing"
        ends = tuple(f"{address}:{port}" for address, port in sorted(backends))
        return _Mismatch(kind, f"to {_ends(intended)}", f"to {_ends(backends)}", ends)
    if look.intended.os == "windows":
        # HNS may ignore Direct Server Return where kube-proxy asks for it
        is_lost = look.observed.os == "windows" and actual.kept is False
        return _source(entrance, actual) if is_lost else None
    translation = look.intended.translation
    assert translation, "asked for by the callers"
    return (
        _refusal(entrance, translation, actual)
        or _policy(entrance, translation, actual)
        or _affinity(entrance, look.intended.name, actual)
    )


def _refusal(entrance: _Entrance, translation: Translation, actual: Translated) -> _Mismatch | None:
    """What happens to packets without a backend."""
    lost = bool(entrance.service.backends) or not translation.refuses
    if actual.backends or actual.lost == lost:
        return None
    words = {True: "packets without a backend are dropped", False: "they are refused"}
    return _Mismatch("wrong-refusal", words[lost], words[not lost])


def _policy(entrance: _Entrance, translation: Translation, actual: Translated) -> _Mismatch | None:
    """For a node port: whether source addresses are kept, and where the node's own packets go."""
    if entrance.address or not entrance.service.backends:
        return None
    if mismatch := _source(entrance, actual):
        return mismatch
    local = entrance.service.outside == "local"
    every = {
        End(backend.address, entrance.port.target_port) for backend in entrance.service.backends
    }
    own = set(actual.backends if actual.own is None else actual.own)
    if not local or not translation.short_circuits or own == every:
        return None
    whose = "the node's own packets, and its pods', go to"
    return _Mismatch("wrong-policy", f"{whose} {_ends(every)}", f"{whose} {_ends(own)}")


def _source(entrance: _Entrance, actual: Translated) -> _Mismatch | None:
    """For a node port: whether source addresses are kept, as far as that is known."""
    local = entrance.service.outside == "local"
    if entrance.address or not actual.backends or actual.kept in {None, local}:
        return None
    words = {True: "the source address is kept", False: "the source is masqueraded"}
    return _Mismatch("wrong-policy", words[local], words[not local])


def _affinity(entrance: _Entrance, node: str, actual: Translated) -> _Mismatch | None:
    """How long clients keep their backends."""
    intended = entrance.service.affinity
    if actual.affinity == intended or not (entrance.ends(node) or entrance.service.backends):
        return None
    if not actual.backends and not actual.own:
        return None  # without a translation there is no affinity
    return _Mismatch("wrong-affinity", _kept(intended), _kept(actual.affinity))


def _kept(seconds: int | None) -> str:
    if seconds is None:
        return "each connection gets any backend"
    return f"clients keep their backend for {seconds} s"


def _ends(ends: Iterable[End]) -> str:
    return ", ".join(f"{address}:{port}" for address, port in sorted(ends)) or "no backends"


def _leaving(look: Look, translation: Translation) -> Iterator[Difference]:
    translations, local = look.observed.translations, translation.local_cidr
    shows = _LEAVING_SHOWS[look.by]
    if (
        translation.services
        and translations.services
        and not translations.marked
        and look.observed.os == "linux"
    ):
        yield look.differs(
            "masquerade-missing",
            LeavingSubject(),
            "masqueraded",
            "they leave with their own source address",
            shows,
            _AGAIN[look.by],
        )
    if not local or not translation.not_masqueraded:
        return
    if look.observed.os == "windows" and not look.observed.pods:
        return  # the pods' endpoints have what is masqueraded
    covering = [
        masquerade for masquerade in translations.masquerades if within(local, masquerade.source)
    ]
    if not covering:
        yield look.differs(
            "masquerade-missing",
            LeavingSubject(local),
            "masqueraded",
            "they leave with the pod's address",
            shows,
            _masquerade(look, translation),
            name=f"packets of {local} that leave the lab",
        )
    for prefix in translation.not_masqueraded if covering else ():
        if not any(within(prefix, spared) for rule in covering for spared in rule.spared):
            yield look.differs(
                "masquerade-exception-missing",
                LeavingSubject(local, prefix),
                "left with the pod's address",
                "masqueraded: " + _spared(covering[0].spared),
                shows,
                _masquerade(look, translation),
                values=covering[0].spared,
            )


def _spared(prefixes: tuple[str, ...]) -> str:
    return f"only {', '.join(prefixes)} excepted" if prefixes else "nothing is spared"


def _masquerade(look: Look, translation: Translation) -> str:
    if look.by == "kubernetes":
        return "restart the network add-on on this node"
    kept = (*translation.not_masqueraded, "224.0.0.0/4")
    spared = ", ".join(str(address) for address in collapse_addresses(map(IPv4Network, kept)))
    if look.intended.chassis:
        pods = ", ".join(translation.not_masqueraded)
        return (
            f"nft 'add rule ip ovn-kubernetes nat-postrouting ip saddr {{ {pods} }} "
            f"ip daddr != {{ {pods} }} masquerade fully-random'"
        )
    chain = "ip kube-proxy nat-postrouting"
    return (
        f"nft 'flush chain {chain}; add rule {chain} jump masquerading; "
        f"add rule {chain} ip saddr {translation.local_cidr} ip daddr != {{ {spared} }} "
        "masquerade fully-random'"
    )


def is_of_endpoints(difference: Difference) -> bool:
    """Whether it is a symptom of a kube-proxy whose endpoints are not the intended ones."""
    return difference.kind in {
        "service-missing",
        "stale-backend",
        "backend-missing",
        "balancer-kept",
        "wrong-refusal",
    }


def is_of_not_ready(_: Difference, other: Difference) -> bool:
    """What follows where the cluster reports a node NotReady: every Service loses its pods."""
    return is_of_endpoints(other)


class ServicesCheck(Check):
    """Services and their backends, then masquerading."""

    order = 30
    kinds = (
        Kind(
            "service-rules-missing",
            fault="service-rules-missing",
            windows=_HNS_POLICIES,
            meets=at_services,
        ),
        Kind("service-missing", windows=_HNS_POLICIES, meets=_at_entrance),
        Kind(
            "stale-backend",
            fault="service-backend-stale",
            windows=_HNS_POLICIES,
            meets=_at_entrance,
        ),
        Kind("backend-missing", windows=_HNS_POLICIES, meets=_at_entrance, of_containers=True),
        Kind(
            "balancer-kept",
            fault="hns-balancers-kept",
            windows=_HNS_POLICIES,
            meets=_at_entrance,
        ),
        Kind(
            "wrong-policy",
            windows=replace(_HNS_POLICIES, fault="hns-dsr-ignored"),
            meets=_at_entrance,
        ),
        Kind("wrong-affinity", meets=_at_entrance),
        Kind("wrong-refusal", meets=_at_entrance),
        Kind(
            "masquerade-missing",
            fault="masquerade-missing",
            windows=OnWindows(
                HNS_ENDPOINTS,
                advice="add an OutBoundNAT policy to AdditionalArgs of the CNI configuration; "
                "delete the pods",
            ),
            meets=_at_masquerade,
        ),
        Kind(
            "masquerade-exception-missing",
            fault="outboundnat-exception-missing",
            windows=OnWindows(
                HNS_ENDPOINTS,
                advice="add the prefix to the OutBoundNAT ExceptionList of the CNI configuration; "
                "delete the pods",
            ),
            meets=_at_exception,
        ),
    )

    def on_machine(self, look: Look) -> Iterator[Difference]:
        translation, translations = look.intended.translation, look.observed.translations
        if translation is None or not _knows(look) or look.lacks_pod_network:
            return
        if look.intended.chassis:  # OVN implements the Services
            yield from _leaving(look, translation)
            return
        services = {
            (service.protocol, service.address, service.port): service
            for service in translations.services
        }
        wanted = list(_wanted(translation.services))
        leading = {key for key, service in services.items() if service.backends or service.own}
        served = [
            entrance for entrance in wanted if entrance.ends(look.intended.name)
        ]  # others may still be refused
        if served and not any(
            key in leading for entrance in served for key in entrance.list_keys()
        ):
            yield look.differs(
                "service-rules-missing",
                ServiceSubject(),
                f"{len(translation.services)} of them translated",
                _STRANDED if translations.stranded else _no_services(services),
                _STRANDED_SHOWS if translations.stranded else _SHOWS.get(translations.by, ""),
                _again(look, "service-missing"),
                windows=_REFUSED if _runs_proxy(look) else None,
            )
        else:
            for entrance in wanted:
                yield from _service(look, entrance, services)
        yield from _leaving(look, translation)
