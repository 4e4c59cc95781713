"""What the node translates: Services to backends, and pods' packets that leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from lab.cluster.observers.difference import Difference, Kind, Look
from lab.cluster.observers.facts import Translated
from lab.cluster.observers.rules import within
from lab.topology.intent import Service, Translation

_PROTOCOLS = ("tcp", "udp")
_SHOWS = {
    "lab": "nft list table ip kube-proxy",
    "nftables": "nft list table ip kube-proxy",
    "iptables": "iptables-save -t nat",
    "": "nft list table ip kube-proxy; iptables-save -t nat",
}
_AGAIN = {
    "lab": "lab down, then lab up",
    "kubernetes": (
        "restart kube-proxy on this node; if it complains in its log, mend that first; "
        "then kubectl get endpointslices"
    ),
}
_Key = tuple[str, str | None, int]


def check(look: Look) -> Iterator[Difference]:
    """Services first, then what leaves."""
    translation, seen = look.intended.translation, look.observed.translations
    if translation is None or not _knows(look):
        return
    found = {(one.protocol, one.address, one.port): one for one in seen.services}
    wanted = list(_wanted(translation.services))
    if wanted and not any(key in found for _, keys in wanted for key in keys):
        yield look.differs(
            "service-rules-missing",
            "Services",
            f"{len(translation.services)} of them translated",
            "none of them is" if found else "nothing is translated at all",
            _SHOWS.get(seen.by, ""),
            _AGAIN[look.by],
        )
    else:
        for service, keys in wanted:
            yield from _service(look, service, keys, found)
    yield from _leaving(look, translation)


def _knows(look: Look) -> bool:
    observed = look.observed
    return observed.knows("nftables") or (
        observed.knows("iptables") and bool(observed.translations.by)
    )


def _wanted(services: Iterable[Service]) -> Iterator[tuple[Service, tuple[_Key, ...]]]:
    """Each Service by its address, then by its NodePort."""
    for service in services:
        yield service, tuple((one, service.address, service.port) for one in _PROTOCOLS)
        if service.node_port:
            yield service, tuple((one, None, service.node_port) for one in _PROTOCOLS)


def _service(
    look: Look, service: Service, keys: tuple[_Key, ...], found: Mapping[_Key, Translated]
) -> Iterator[Difference]:
    """One entrance of a Service; what differs alike in TCP and UDP is told once."""
    intended = {(one.address, one.port) for one in service.backends}
    if not intended and look.observed.os == "windows":
        return  # kube-proxy makes no load balancer without backends there
    said: dict[tuple[Kind, str], list[str]] = {}
    for key in keys:
        there = found.get(key)
        if there is None:
            said.setdefault(("service-missing", "not translated"), []).append(key[0])
            continue
        backends = {(one.address, one.port) for one in there.backends}
        kind: Kind = "stale-backend" if backends - intended else "backend-missing"
        if backends != intended:
            said.setdefault((kind, f"to {_ends(backends)}"), []).append(key[0])
    entrance = (
        f"{service.address}:{service.port}" if keys[0][1] else f"NodePort {service.node_port}"
    )
    for (kind, observed), protocols in said.items():
        yield look.differs(
            kind,
            f"Service {service.name}, {entrance}, {' and '.join(protocols)}",
            f"to {_ends(intended)}",
            observed,
            _SHOWS.get(look.observed.translations.by, ""),
            _AGAIN[look.by],
        )


def _ends(ends: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{address}:{port}" for address, port in sorted(ends)) or "nothing: refused"


def _leaving(look: Look, translation: Translation) -> Iterator[Difference]:
    seen, local = look.observed.translations, translation.local_cidr
    shows = "nft list ruleset | grep -B 3 masquerade; iptables-save -t nat | grep MASQ"
    if translation.services and seen.services and not seen.marked and look.observed.os == "linux":
        yield look.differs(
            "masquerade-missing",
            "packets marked by kube-proxy",
            "masqueraded",
            "they leave with their own source address",
            shows,
            _AGAIN[look.by],
        )
    if not local or not translation.not_masqueraded:
        return
    if look.observed.os == "windows" and not look.observed.pods:
        return  # it is the pods' endpoints that say what is masqueraded
    covering = [one for one in seen.masquerades if within(local, one.source)]
    if not covering:
        yield look.differs(
            "masquerade-missing",
            f"packets of {local} that leave the lab",
            "masqueraded",
            "they leave with the pod's address",
            shows,
            _masquerade(look, translation),
        )
    for prefix in translation.not_masqueraded if covering else ():
        if not any(within(prefix, one) for rule in covering for one in rule.spared):
            yield look.differs(
                "masquerade-exception-missing",
                f"packets of {local} to {prefix}",
                "left with the pod's address",
                "masqueraded: " + _spared(covering[0].spared),
                shows,
                _masquerade(look, translation),
            )


def _spared(prefixes: tuple[str, ...]) -> str:
    return f"only {', '.join(prefixes)} spared" if prefixes else "nothing is spared"


def _masquerade(look: Look, translation: Translation) -> str:
    if look.by == "kubernetes":
        return "restart the network add-on on this node (flanneld with --ip-masq)"
    spared = ", ".join((*translation.not_masqueraded, "224.0.0.0/4"))
    return (
        f"nft add rule ip kube-proxy nat-postrouting ip saddr {translation.local_cidr} "
        f"ip daddr != '{{ {spared} }}' masquerade fully-random"
    )
