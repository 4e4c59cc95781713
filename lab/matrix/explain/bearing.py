"""Whether a difference bears on a path: at which hop a packet first meets it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lab.cluster.observers.difference import Difference
from lab.cluster.observers.passage import Barrier
from lab.topology.path import Hop, Packet, Path
from lab.topology.steering import covers, network_of

_DNS_PORT = 53
_Touches = Callable[[Difference, Hop, Path], bool]


def first_hop(difference: Difference, path: Path) -> int | None:
    """The first hop that a difference concerns, counted from 0; None where it concerns none."""
    touches = _touches(difference)
    for number, hop in enumerate(path.hops):
        if touches(difference, hop, path):
            return number
    return None


def _touches(difference: Difference) -> _Touches:
    if difference.barrier is not None:
        return _barred
    return _BY_KIND.get(difference.kind, _same)


def _same(difference: Difference, hop: Hop, _: Path) -> bool:
    """Most differences have the name of the very thing that the packet meets."""
    return hop.machine == difference.node and hop.object == difference.object


def _barred(difference: Difference, hop: Hop, _: Path) -> bool:
    barrier = difference.barrier
    if barrier is not None and barrier.protocol == "arp":
        others = any(_asks(hop, prefix, difference.node) for prefix in barrier.prefixes)
        return others or (hop.machine == difference.node and _asked_in(hop, barrier.networks))
    if barrier is None or hop.machine != difference.node or hop.kind == "switch":
        return False  # what crosses a hypervisor's switch is none of its own packets
    if barrier.device and (hop.place, hop.device) != (difference.node, barrier.device):
        return False
    return any(_fits(barrier, packet) for packet in (hop.packet, hop.carried) if packet)


def _fits(barrier: Barrier, packet: Packet) -> bool:
    if barrier.protocol not in {"", packet.protocol}:
        return False
    if barrier.ports:  # of the answering side, which an answer comes from
        first, last = barrier.ports
        if packet.answer or not first <= packet.port <= last:
            return False
    ends = (packet.source, packet.target)
    return not barrier.prefixes or any(
        covers(prefix, end) for prefix in barrier.prefixes for end in ends
    )


def _way_out(difference: Difference, hop: Hop, path: Path) -> bool:
    return hop.kind == "way-out" and _same(difference, hop, path)


def _resolver(difference: Difference, hop: Hop, path: Path) -> bool:
    asks = path.flow.port == _DNS_PORT and hop.place == path.flow.source
    return asks and _same(difference, hop, path)


def _not_listening(difference: Difference, hop: Hop, path: Path) -> bool:
    return hop.place == path.there[-1].place and _same(difference, hop, path)


def _hairpin(difference: Difference, hop: Hop, path: Path) -> bool:
    comes_back = path.there[0].place == path.there[-1].place
    return comes_back and _same(difference, hop, path)


def _bridge_filter(difference: Difference, hop: Hop, _: Path) -> bool:
    return hop.machine == difference.node and hop.kind == "untranslated"


def _proxy(difference: Difference, hop: Hop, _: Path) -> bool:
    """Those who ask for the address on the segment are the other machines."""
    return _asks(hop, difference.object.removeprefix("address "), difference.node)


def _gateway(difference: Difference, hop: Hop, _: Path) -> bool:
    """Those behind it ask for the address on the segment."""
    return _asks(hop, difference.object.removeprefix("gateway ").partition("/")[0], difference.node)


def _asks(hop: Hop, prefix: str, machine: str) -> bool:
    """Whether another machine asks there for the MAC of an address of the prefix."""
    if hop.kind != "neighbour" or hop.machine == machine or hop.place != hop.machine:
        return False
    return covers(prefix, hop.object.split()[1])


def _asked_in(hop: Hop, networks: tuple[str, ...]) -> bool:
    """Whether the MAC of an address in one of the networks is asked for there."""
    if hop.kind != "neighbour" or hop.place != hop.machine:
        return False
    return any(covers(network_of(one), hop.object.split()[1]) for one in networks)


def _service(difference: Difference, hop: Hop, path: Path) -> bool:
    """The very entrance that is asked, in its protocol."""
    if hop.kind != "service" or hop.machine != difference.node:
        return False
    flow = path.flow
    entrance = f"{hop.object}, {flow.target}:{flow.port}, "
    by_port = f"{hop.object}, NodePort {flow.port}, "
    return difference.object.startswith((entrance, by_port)) and flow.protocol in (
        difference.object.rpartition(", ")[2].split(" and ")
    )


def _card(difference: Difference, hop: Hop, path: Path) -> bool:
    """Also a Service that the node itself asks: without its card it has no route to the address."""
    asks = hop.kind == "service" and path.there[0].place == hop.place == difference.node
    return asks or _same(difference, hop, path)


def _services(difference: Difference, hop: Hop, _: Path) -> bool:
    return hop.kind == "service" and hop.machine == difference.node


def _masquerade(difference: Difference, hop: Hop, _: Path) -> bool:
    ours = hop.kind == "masquerade" and hop.machine == difference.node
    return ours and difference.object.startswith(hop.object)


def _spared(difference: Difference, hop: Hop, _: Path) -> bool:
    """``packets of 10.244.1.0/24 to 10.244.0.0/16``: on a bridge, too, they meet masquerade."""
    if hop.kind not in {"route", "bridge"} or hop.machine != difference.node or hop.packet.answer:
        return False
    source, target = difference.object.removeprefix("packets of ").split(" to ")
    packet = hop.carried or hop.packet
    return covers(source, packet.source) and covers(target, packet.target)


def _stray(difference: Difference, hop: Hop, _: Path) -> bool:
    if hop.kind != "route" or hop.machine != difference.node:
        return False
    return covers(difference.object.removeprefix("route to "), hop.packet.target)


def _on_machine(difference: Difference, hop: Hop, _: Path) -> bool:
    return hop.machine == difference.node


def _asks_dns(_: Difference, hop: Hop, path: Path) -> bool:
    """Whoever asks for a name finds nobody: before all that only follows from it."""
    return path.flow.port == _DNS_PORT and hop is path.hops[0]


def _of_block(difference: Difference, hop: Hop, path: Path) -> bool:
    """What the cluster is asked for of a node's block comes before all that follows from it."""
    return hop is path.hops[0] and difference.node in path.machines


def _by_device(difference: Difference, hop: Hop, _: Path) -> bool:
    device = difference.object.rpartition(" ")[2]
    return (hop.place, hop.device) == (difference.node, device)


def _tunnel_local(difference: Difference, hop: Hop, path: Path) -> bool:
    """``chassis worker1``: all that goes into its tunnels, and to it."""
    if not difference.object.startswith("chassis "):
        return _same(difference, hop, path)
    ends = {hop.machine, hop.object.removeprefix("tunnel to ")}
    return hop.kind == "tunnel" and difference.node in ends


def _balanced(difference: Difference, hop: Hop, path: Path) -> bool:
    """``Service to-a, 10.96.0.20:80, tcp``: wherever a packet enters the logical network."""
    service, entrance, protocol = difference.object.split(", ")
    asked = f"{hop.packet.target}:{hop.packet.port}" == entrance
    everywhere = difference.node == difference.place
    here = everywhere or hop.machine == difference.node
    named = hop.kind == "service" and hop.object == service
    return named and asked and here and protocol == path.flow.protocol


def _unplugged(difference: Difference, hop: Hop, path: Path) -> bool:
    """``port vxlan-nodes of the tunnel``, or of a machine."""
    if difference.object.endswith(" of the tunnel"):
        return hop.machine == difference.node and hop.kind == "tunnel"
    return _same(difference, hop, path)


def _duplicate(difference: Difference, hop: Hop, _: Path) -> bool:
    """Where the one is that should not have it, or one that should."""
    device = difference.object.rpartition(" of ")[2]
    return any(_is_at(hop, *one) for one in ((difference.node, device), *difference.others))


def _is_at(hop: Hop, machine: str, device: str) -> bool:
    if device.startswith("pod "):
        return hop.place == device.removeprefix("pod ")
    return (hop.place, hop.device) == (machine, device)


def _duplicate_cidr(difference: Difference, hop: Hop, path: Path) -> bool:
    """``pod CIDR 10.244.1.1/24 of cni0``: what the machine keeps, or draws, that is another's."""
    if _concerned(difference, hop, path):
        return True
    network = network_of(difference.object.split()[2])
    ours = hop.machine == difference.node and hop.kind in {"route", "forwarding"}
    packets = (hop.packet, hop.carried)
    return ours and any(covers(network, packet.target) for packet in packets if packet)


def _concerned(difference: Difference, hop: Hop, _: Path) -> bool:
    return (hop.machine, hop.object) in difference.concerns


_BY_KIND: Mapping[str, _Touches] = {
    "link-down": _card,
    "pod-gateway": _way_out,
    "pod-resolver": _resolver,
    "pod-not-listening": _not_listening,
    "hairpin-off": _hairpin,
    "bridge-filter-off": _bridge_filter,
    "proxy-missing": _proxy,
    "gateway-missing": _gateway,
    "service-missing": _service,
    "stale-backend": _service,
    "backend-missing": _service,
    "wrong-policy": _service,
    "wrong-affinity": _service,
    "wrong-refusal": _service,
    "service-rules-missing": _services,
    "masquerade-missing": _masquerade,
    "masquerade-exception-missing": _spared,
    "stray-route": _stray,
    "slowed": _by_device,
    **dict.fromkeys(
        (
            *("program-down", "runtime-down", "proxy-stopped", "flanneld-down", "felix-down"),
            "wrong-subnet",
            *("cni-config-missing", "certificate-expired", "disk-full"),
        ),
        _on_machine,
    ),
    "dns-scaled-down": _asks_dns,
    **dict.fromkeys(("wrong-pool", "wrong-encapsulation", "wrong-as"), _of_block),
    "tunnel-local": _tunnel_local,
    "balancers-missing": _services,
    "balancer-missing": _balanced,
    "balancer-stale": _balanced,
    "unplugged": _unplugged,
    "tunnel-port-dropped": lambda one, hop, _: hop.machine == one.node and hop.kind == "tunnel",
    "duplicate-address": _duplicate,
    "duplicate-mac": _duplicate,
    "duplicate-pod-cidr": _duplicate_cidr,
    "session-down": _concerned,
    "session-waiting": _concerned,
}
"""How the others are met. A firewall's rule is met by the packets that it names."""
