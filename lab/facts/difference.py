"""A difference: what is wrong, where, how to see it, and how to fix it. The only record of it.

Checks, the comparison of whole states, that of a cluster's objects and the counters of packets all
yield this one. What ranks, follows, meets a packet or is named by the kernel is decided by
``subject``, ``attribute``, ``change``, ``effect`` and ``values``, never by the words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from lab.facts.command_lines import lab_exec_line, of_cluster, on_node
from lab.facts.effect import NO_EFFECT, Effect
from lab.facts.translations import Barrier
from lab.topology.subject import (
    NO_SUBJECT,
    AddressSubject,
    ChainSubject,
    DeviceSubject,
    EntrySubject,
    MachineSubject,
    NeighbourSubject,
    ProgramSubject,
    ProxySubject,
    SettingSubject,
    Subject,
)

Change = Literal["new", "gone", "changed"]
CLUSTER, CLUSTER_NAME = "", "objects of the cluster"
"""The place of objects of the cluster's API, and its name for readers."""
DEVIATION = "not-as-made"
"""The kind of any other difference from the state that the lab creates."""
SILENT = "machine-silent"
"""The kind of what could not be read: nothing is known to be wrong there, nor to be right."""
NOT_ASKED = "not-asked"
"""The kind of what a machine has no program or no part of the kernel for, neither now nor when the
lab was made: nothing is wrong there, and nothing was looked at."""
OBJECT = "object-not-as-made"
"""The kind of a difference of an object of the cluster's API."""
Concern = tuple[str, Subject]
"""A machine, or nothing for all of them, and what depends on a difference there."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What is wrong, where, how to see it, and how to fix it."""

    kind: str
    """A kind of the checks in :mod:`lab.explain.checks`, or one of the explainer:
    ``"lost-between"``, ``"lost-here"``, ``"machine-silent"``, ``"intent-ends"``,
    ``"not-as-made"``, ``"not-asked"``, ``"object-not-as-made"``."""
    fault: str
    """Its name in the fault catalogue; empty if it has none."""
    node: str
    object: str
    """The subject's name for readers: ``"chain ip filter forward"``, ``"eth0 mtu"``."""
    intended: str
    observed: str
    shows: str
    """The command that shows it, on the machine or in the pod ``place``; or a sentence."""
    mends: str
    """The command that fixes it there; or a sentence."""
    place: str
    """Pod or machine where the commands are run; empty until it is known where a state is from."""
    hop: int = -1
    """Index of its hop on the path, from 0; -1 if it is not on the path."""
    subject: Subject = NO_SUBJECT
    attribute: str = ""
    """What of the subject differs: ``"mtu"``, ``"carrier"``; empty for its existence, or all."""
    change: Change = "changed"
    effect: Effect = NO_EFFECT
    """What is done to packets by what is seen, if it is a rule or the like."""
    values: tuple[str, ...] = ()
    """What is seen, as the machine itself writes it: addresses, numbers, rules."""
    section: str = ""
    """The part of a whole state: ``"nftables"``, ``"route"``, ``"link"``, ``"setting"``, ..."""
    barrier: Barrier | None = None
    """The rule that blocks packets, if the difference is one."""
    others: tuple[tuple[str, Subject], ...] = ()
    """Machine and device, or pod, of the others that have the same unique thing."""
    concerns: tuple[Concern, ...] = ()
    """What depends on it."""
    no_command: bool = False
    """Whether the advice is only to make the lab again."""

    @property
    def of_state(self) -> bool:
        """Whether only a comparison with the state as made finds it, and no check."""
        return self.kind in {DEVIATION, OBJECT}

    @property
    def sentence(self) -> str:
        """``on worker1, tunnel flannel.4096: VNI 4097; it should be: VNI 4096``."""
        should = f"; it should be: {self.intended}" if self.intended else ""
        at = "" if self.kind == OBJECT else f"on {self.node}, "
        return f"{at}{self.object}: {self.observed}{should}"

    @property
    def line(self) -> str:
        """The sentence with the fault's name."""
        return f"{self.sentence} ({self.fault})" if self.fault else self.sentence

    def shown_by(self, lab: str) -> str:
        """The command line or sentence to see it."""
        return lab_exec_line(lab, self._runs_on(self.shows), self.shows)

    def fixed_by(self, lab: str) -> str:
        """The command line or sentence to fix it."""
        return lab_exec_line(lab, self._runs_on(self.mends), self.mends)

    def _runs_on(self, command: str) -> str:
        return self.node if on_node(command) else self.place


def in_cluster(difference: Difference) -> Difference:
    """The difference of a cluster, with commands that its nodes have, and none for a pod."""
    shows, mends = (
        of_cluster(difference.place, text) for text in (difference.shows, difference.mends)
    )
    return replace(difference, shows=shows, mends=mends)


def make_not_asked(query: str, reason: str, node: str = "") -> Difference:
    """That a query was not made, as the machine lacks what it takes."""
    return Difference(
        NOT_ASKED, "", node, query, "", reason, "", "", node, subject=MachineSubject(node)
    )


def make_unread(query: str, reason: str, node: str = "", *, installed: bool = True) -> Difference:
    """A query without an answer. ``installed``: whether the machine has the program for it."""
    return Difference(
        SILENT,
        "",
        node,
        f"the answer to '{query}'",
        "",
        f"cannot be read: {reason}",
        "lab status --deep",
        "check that the machine can start processes and has free memory, then try again"
        if installed
        else "install the program or load the kernel module, then try again",
        node,
        subject=MachineSubject(node),
    )


def name_in_state(subject: Subject, attribute: str = "") -> str:  # noqa: PLR0911  a table
    """How the comparison of whole states calls a subject, and an attribute of a device."""
    match subject:
        case DeviceSubject(name=name):
            return f"{name} {attribute}" if attribute else name
        case NeighbourSubject():
            return f"neighbour {subject.address} dev {subject.device}"
        case ProxySubject():
            return f"neighbour proxy {subject.address} dev {subject.device}"
        case EntrySubject():
            to = f" dst {subject.remote}" if subject.remote else ""
            vlan = f" vlan {subject.vlan}" if subject.vlan else ""
            return f"forwarding entry {subject.mac} dev {subject.device}{to}{vlan}"
        case SettingSubject(path=path):
            return f"setting net/{path}"
        case ProgramSubject(name=name):
            return f"process {name}"
        case ChainSubject():
            return f"chain {subject.family} {subject.table} {subject.chain}"
        case AddressSubject() if attribute:
            return f"address of {subject.device}"
        case _:
            return str(subject)
