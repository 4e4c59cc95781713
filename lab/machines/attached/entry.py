"""Enters existing clusters: reads them, and brings labs up on them."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256

from lab._errors import PreflightError, UsageError
from lab.lifecycle import api, up
from lab.lifecycle.api import BANNER
from lab.lifecycle.down import DownResult
from lab.lifecycle.names import ATTACHED, TEMPORARY, check_name, is_attached, user_lock
from lab.machines.attached import design
from lab.machines.attached.connection import choose_context, opened_api, read_cluster
from lab.machines.attached.provider import AttachedProvider
from lab.machines.attached.recognise import recognise
from lab.machines.attached.record import (
    AttachedRecord,
    ClusterAddress,
    ProbeTerms,
    read_record,
    to_text,
)
from lab.state.lock import lab_lock
from lab.topology.observed import TOKEN

_LONGEST = 40
"""Characters of a lab's name in its namespace, which is a DNS label of 63."""
_PREFIX = 16
"""The same in the names of Services: ``to-``, prefix, ``-``, a node's 40, and ``-p1`` are 63."""


def look(address: ClusterAddress, lab: str, terms: ProbeTerms) -> AttachedRecord:
    """Read the cluster; nothing is made.

    Raises UsageError when kubeconfig or context is wrong; PreflightError when the cluster does not
    answer, refuses the user, or has no node to probe.
    """
    with opened_api(address) as opened:
        version, readings = read_cluster(opened)
        cluster = recognise(opened.server, version, readings, terms)
    if not cluster.nodes:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in cluster.others[:3])
        raise PreflightError(
            f"choosing nodes of the cluster of context '{address.context}'",
            f"no node can be probed: {reasons}",
            "'lab attach --dry-run' shows all nodes",
        )
    own = f"hybridlab-{lab[:_LONGEST].rstrip('-')}-{secrets.token_hex(3)}"
    prefix = f"{_shorten(lab)}-" if terms.namespace else ""
    return AttachedRecord(lab, address, terms, cluster, terms.namespace or own, prefix)


def _shorten(lab: str) -> str:
    """A lab's name, for the names of its objects: as long as Services' names allow."""
    if len(lab) <= _PREFIX:
        return lab
    return f"{lab[: _PREFIX - 7].rstrip('-')}-{sha256(lab.encode()).hexdigest()[:6]}"


def enter(
    record: AttachedRecord, command: str, say: Callable[[str], None], *, temporary: bool = False
) -> up.UpResult:
    """Put the probe pods of a lab into its cluster; what an earlier call made is kept.

    The caller holds the lab; see :func:`held`.

    Raises as :func:`lab.lifecycle.up.up` does; UsageError when the lab is attached elsewhere.
    """
    check_name(record.lab, new=True)
    provider = AttachedProvider()
    with api.opened_store() as store:
        row = store.lab(record.lab)
        if row and row.status != "down" and is_attached(row):
            earlier = read_record(row.scenario_text)
            _require_same_place(earlier, record)
            record = replace(record, namespace=earlier.namespace, prefix=earlier.prefix)
        provider.record = record
        decided = design.decide(record)
        banner = provider.banner(decided.intent)
        options: dict[str, object] = {ATTACHED: command, BANNER: banner}
        request = up.CompiledRequest(
            name=record.lab,
            scenario_text=to_text(record),
            scenario_path=record.address.kubeconfig,
            plan=decided.plan,
            intent=decided.intent,
            command=command,
            options=options | ({TEMPORARY: True} if temporary else {}),
        )
        return up.up(request, provider, store, say)


def _require_same_place(earlier: AttachedRecord, record: AttachedRecord) -> None:
    """Refuse another cluster or namespace: what is in the earlier one would be lost."""
    places = [
        f"context '{each.address.context}' of '{each.address.kubeconfig}' ({each.cluster.server}), "
        + (f"namespace '{each.namespace}'" if each.shared else "a namespace of its own")
        for each in (earlier, record)
    ]
    if places[0] != places[1]:
        raise UsageError(
            f"attaching lab '{record.lab}' to {places[1]}",
            f"it is attached to {places[0]}",
            f"run 'lab detach {record.lab}' first, or give another NAME",
        )


@contextmanager
def held(lab: str, command: str) -> Iterator[None]:
    """Hold a lab for the block: nobody else attaches it, and 'lab gc' leaves a temporary one."""
    with api.opened_store() as store:
        directory = user_lock(store.lab_directory(lab))
    with lab_lock(directory, command):
        yield


def attach_command(record: AttachedRecord, kubeconfig: str | None) -> str:
    """The command line that enters the cluster again, on the same terms."""
    return shlex.join(["lab", "attach", record.lab, *_options(record, kubeconfig)])


def check_command(record: AttachedRecord, kubeconfig: str | None) -> str:
    """The command line that checks the cluster again; the cells to choose are to be added."""
    return shlex.join(["lab", "check", *_options(record, kubeconfig), "-k"])


def _options(record: AttachedRecord, kubeconfig: str | None) -> Iterator[str]:
    """The options of a lab's cluster and terms that are not the usual ones."""
    terms, usual = record.terms, ProbeTerms()
    yield from ("--context", record.address.context)
    if kubeconfig:
        yield from ("--kubeconfig", kubeconfig)
    for option, value, default in (
        ("--image", terms.image, usual.image),
        ("--image-prefix", terms.prefix, ""),
        ("--namespace", terms.namespace, ""),
        ("--max-nodes", terms.most_nodes, usual.most_nodes),
        ("--rate", terms.rate, usual.rate),
    ):
        if value != default:
            yield from (option, str(value))
    for option, values in (
        ("--pull-secret", terms.pull_secrets),
        ("--tolerate", terms.tolerations),
        ("--nodes", terms.nodes),
    ):
        for text in values:
            yield from (option, text)
    if not terms.node_ports:
        yield "--no-node-ports"
    if terms.host_network:
        yield "--host-network"
    if terms.debug_pods:
        yield "--debug-pods"
    if terms.from_here:
        yield "--from-here"


def forget(lab: str, say: Callable[[str], None]) -> tuple[DownResult, str]:
    """Take a lab out of the journal without asking its cluster.

    Returns the result, and the command that removes what may be left.

    Raises as :func:`lab.lifecycle.api.forget` does.
    """
    result, row = api.forget(lab, say)
    if row is None or not result.changed:
        return result, ""
    return result, _remove_by_hand(read_record(row.scenario_text), row.token)


def _remove_by_hand(record: AttachedRecord, token: str) -> str:
    if record.shared:
        marked = f"--selector={TOKEN}={token}"
        return record.address.kubectl(f"--namespace={record.namespace} delete pods,svc {marked}")
    return record.address.kubectl(f"delete namespace {record.namespace}")


__all__ = ["attach_command", "check_command", "choose_context", "enter", "forget", "held", "look"]
