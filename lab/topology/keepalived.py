"""keepalived as the holder of virtual gateways: its configuration, and when it is ready. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lab.topology.daemon import Daemon, File, Ready
from lab.topology.intent import Gateway

NAME = "keepalived"
_FIRST_PRIORITY = 150
"""Of the most preferred; each further candidate has ten less, so that two that wait for the same
silence do not take over in the same moment (RFC 5798: the skew is a 256th of the interval each)."""
_PRIORITY_STEP = 10
_LABEL_LENGTH = 15


def daemon(
    machine: str,
    gateways: tuple[Gateway, ...],
    addresses: Mapping[str, str],
    advert_seconds: float,
) -> Daemon:
    """The daemon of one candidate.

    It is ready when it holds what it is to hold, and waits for the rest. All candidates start as
    backups that preempt nobody, so the first to start is the holder: it starts a stage before
    the others.

    Parameters
    ----------
    machine
        The candidate's name.
    gateways
        All that it may hold.
    addresses
        Of every candidate on the segment, by its name.
    advert_seconds
        Between two advertisements; a backup takes over after three that are missing.

    """
    first = all(one.holder == machine for one in gateways)
    state = "MASTER" if first else "BACKUP"
    lines = (rf"\({one.node}\) Entering {state} STATE" for one in gateways)
    return Daemon(
        name=NAME,
        package=NAME,
        command=(NAME, "--dont-fork", "--log-console", "--log-detail", "--vrrp", *_FILE),
        ready=Ready(r"\A" + "".join(rf"(?=[\s\S]*{line})" for line in lines)),
        files=(
            File("keepalived.conf", configuration(machine, gateways, addresses, advert_seconds)),
        ),
        stage=0 if first else 1,
    )


_FILE = (f"--use-file=/run/{NAME}/keepalived.conf",)


def configuration(
    machine: str,
    gateways: tuple[Gateway, ...],
    addresses: Mapping[str, str],
    advert_seconds: float,
) -> str:
    """``keepalived.conf`` of one candidate."""
    return "\n".join(_lines(machine, gateways, addresses, advert_seconds)) + "\n"


def _lines(
    machine: str,
    gateways: tuple[Gateway, ...],
    addresses: Mapping[str, str],
    advert_seconds: float,
) -> Iterator[str]:
    version = 2 if float(advert_seconds).is_integer() else 3  # whole seconds only before 3
    yield "global_defs {"
    yield f"  router_id {machine}"
    yield f"  vrrp_version {version}"
    yield "  vrrp_skip_check_adv_addr"
    yield "  vrrp_garp_interval 0"
    yield "  vrrp_gna_interval 0"
    yield "}"
    for number, gateway in enumerate(gateways, start=1):
        rank = gateway.candidates.index(machine)
        yield f"vrrp_instance {gateway.node} {{"
        yield "  state BACKUP"
        yield f"  interface {gateway.device}"
        yield f"  virtual_router_id {gateway.router_id}"
        yield f"  priority {_FIRST_PRIORITY - rank * _PRIORITY_STEP}"
        yield "  nopreempt"
        yield f"  advert_int {advert_seconds:g}"
        yield f"  unicast_src_ip {addresses[machine]}"
        yield "  unicast_peer {"
        for other in gateway.candidates:
            if other != machine:
                yield f"    {addresses[other]}"
        yield "  }"
        yield "  virtual_ipaddress {"
        label = f"{gateway.device}:{number}"[:_LABEL_LENGTH]
        yield f"    {gateway.address} dev {gateway.device} label {label}"
        yield "  }"
        yield "}"
