"""Enters clusters that exist: reads them, and brings labs up on them."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from lab._errors import PreflightError
from lab.lifecycle import api, up
from lab.lifecycle.api import BANNER
from lab.lifecycle.names import ATTACHED, TEMPORARY, check_name, user_lock
from lab.machines.attached import design
from lab.machines.attached.connection import choose_context, opened_api, read_cluster
from lab.machines.attached.provider import AttachedProvider
from lab.machines.attached.recognise import recognise
from lab.machines.attached.record import (
    AttachedRecord,
    ClusterAddress,
    ProbeTerms,
    from_text,
    to_text,
)
from lab.state.lock import lab_lock

_LONGEST = 40
"""Characters of a lab's name in its namespace, which is a DNS label of 63."""


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
            f"there is none to probe: {reasons}",
            "'lab attach --dry-run' shows all nodes",
        )
    own = f"hybridlab-{lab[:_LONGEST].rstrip('-')}-{secrets.token_hex(3)}"
    return AttachedRecord(lab, address, terms, cluster, terms.namespace or own)


def enter(
    record: AttachedRecord, command: str, say: Callable[[str], None], *, temporary: bool = False
) -> up.UpResult:
    """Put the probe pods of a lab into its cluster; what an earlier call made is kept.

    Raises as :func:`lab.lifecycle.up.up` does.
    """
    check_name(record.lab, new=True)
    provider = AttachedProvider()
    with api.opened_store() as store:
        row = store.lab(record.lab)
        if row and row.status != "down" and row.provider == provider.name:
            earlier = from_text(row.scenario_text)
            if earlier.address == record.address and not record.terms.namespace:
                record = replace(record, namespace=earlier.namespace)
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


@contextmanager
def held(lab: str) -> Iterator[None]:
    """Hold a temporary lab for the block: 'lab gc' removes it once nobody does."""
    with api.opened_store() as store:
        directory = user_lock(store.lab_directory(lab))
    with lab_lock(directory, "lab check"):
        yield


def attach_command(record: AttachedRecord, kubeconfig: str | None) -> str:
    """The command line that enters the cluster again, on the same terms."""
    terms, usual = record.terms, ProbeTerms()
    words = ["lab", "attach", record.lab, "--context", record.address.context]
    words += ["--kubeconfig", kubeconfig] if kubeconfig else []
    for option, value, default in (
        ("--image", terms.image, usual.image),
        ("--image-prefix", terms.prefix, ""),
        ("--namespace", terms.namespace, ""),
        ("--max-nodes", terms.most_nodes, usual.most_nodes),
        ("--rate", terms.rate, usual.rate),
    ):
        words += [option, str(value)] if value != default else []
    for option, values in (
        ("--pull-secret", terms.pull_secrets),
        ("--tolerate", terms.tolerations),
        ("--nodes", terms.nodes),
    ):
        for value in values:
            words += [option, value]
    words += [] if terms.node_ports else ["--no-node-ports"]
    return shlex.join(words)


__all__ = ["attach_command", "choose_context", "enter", "held", "look"]
