"""The steps that join a Windows node to its cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError
from lab._log import say
from lab.facts.signatures import match
from lab.machines.bundle import medium
from lab.machines.system import NodeApi, NodeCredentials
from lab.shells.shell import ConnectionLostError, UnreachableError
from lab.windows.images import image_steps
from lab.windows.images.image_steps import MODULE, script
from lab.windows.nodes import join_steps, paths
from lab.windows.nodes.join_checks import (
    WindowsObserved,
    evaluation_ending,
    leftovers,
    seconds_off,
    service_ailments,
    unfit_windows,
)
from lab.windows.nodes.join_plan import JoinPlan
from lab.windows.nodes.kubelet import KUBELET_SERVICE
from lab.windows.nodes.network import FLANNELD_TASK
from lab.windows.shell import DIRECTORY, WindowsShell, quote
from lab.windows.step_runner import StepError, StepResult, reboot, run_step

FOLDER = "cluster"
"""Directory of the scripts for cluster nodes among the Windows scripts."""
SHARED = "cluster.psm1"
LOOK_SECONDS = 2.0
"""Seconds between two polls of a node that does not answer or is not there yet."""
ONE_LOOK_SECONDS = 90.0
"""Seconds for one poll: a connection, three small files and a PowerShell."""
REBOOT_SECONDS = 900.0
BACK_SECONDS = 600.0
"""Seconds for HNS networks: public recipes wait some minutes, see
docs/decisions/0019-windows-nodes.md."""
_BESIDE: Mapping[str, tuple[str, ...]] = {
    "hns-network": ("hns-make.ps1",),
    "node-task": ("node-keep.ps1",),
}
"""Scripts that are copied with a step because its scheduled task runs them."""
_PRIVATE = 0o600


class Runner:
    """Runs steps on one node.

    ``look``: seconds between two polls; None for :data:`LOOK_SECONDS`.
    """

    def __init__(self, shell: WindowsShell, patience: int = 1, look: float | None = None) -> None:
        self.shell = shell
        self._patience = patience
        self._look = look
        self._sent: set[str] = set()

    def seconds(self, seconds: float) -> Deadline:
        """A deadline, multiplied by the machine's patience."""
        return Deadline(seconds * self._patience)

    def run(
        self,
        step: image_steps.ImageStep,
        deadline: Deadline | None = None,
        *,
        restarts: bool = False,
    ) -> StepResult:
        """Run a step of a cluster node, or one that images share.

        ``restarts``: restart the machine if the step asks for it.

        Raises StepError, DeadlineError and BrokenError like
        :func:`lab.windows.step_runner.run_step`.
        """
        until = deadline or self.seconds(step.deadline_s + restarts * REBOOT_SECONDS)
        for beside in {SHARED, *_BESIDE.get(step.name, ())} - self._sent:
            content = script(f"{FOLDER}/{beside}")
            self.shell.put(content, f"{DIRECTORY}\\{beside}", _PRIVATE, until)
            self._sent.add(beside)
        folder = f"{FOLDER}/" if isinstance(step, join_steps.ClusterStep) else ""
        content = script(f"{folder}{step.name}.ps1")
        module, given = script(MODULE), image_steps.settings(step)
        return run_step(self.shell, content, module, step.name, given, until, restarts=restarts)

    def run_though_cut_off(self, step: image_steps.ImageStep) -> StepResult:
        """Run a step that cuts the machine off the network; if cut off, run it again."""
        until = self.seconds(step.deadline_s + BACK_SECONDS)
        for _ in until.tries():
            try:
                return self.run(step, until)
            except (ConnectionLostError, UnreachableError) as error:
                lost = error
                self.shell.wait(until)
        raise lost

    def reboot(self) -> None:
        """Restart the node and wait until it accepts commands and files again."""
        reboot(self.shell, self.seconds(REBOOT_SECONDS))

    def wait_until(
        self,
        action: str,
        step: join_steps.ClusterStep,
        lacks: Callable[[Mapping[str, Any]], str],
        seconds: float | None = None,
    ) -> None:
        """Poll with a step that changes nothing until nothing is lacking.

        The machine may be unreachable meanwhile; the error then counts as the last state seen.

        ``action``: what is waited for, as text. ``step``: the step that polls. ``lacks``: returns
        what its facts lack, or an empty text; it may raise to end the wait. ``seconds``: the limit;
        None for ``BACK_SECONDS``.

        Raises DeadlineError with what was last lacking or how the machine was unreachable. Raises
        BrokenError as ``lacks`` does.
        """
        deadline = self.seconds(BACK_SECONDS if seconds is None else seconds)
        met = ""

        def look() -> str:
            nonlocal met
            own = Deadline(min(deadline.left(), ONE_LOOK_SECONDS * self._patience))
            try:
                self.shell.wait(own)
                facts = self.run(step, own).facts
            except (ConnectionLostError, UnreachableError, DeadlineError) as error:
                # A poll cut short by the deadline says less than the one before it.
                if not met or deadline.left() > 0.0:
                    met = f"'{self.shell.name}' does not answer: {error.happened}"
                return met
            except StepError as error:  # HNS may be too busy to answer
                met = error.happened
                return met
            met = lacks(facts)
            return met

        hint = f"look at its console, and at {DIRECTORY}\\log on it"
        every = LOOK_SECONDS if self._look is None else self._look
        deadline.wait(action, look, until=lambda why: not why, every=every, hint=hint)


def fact_of(facts: Mapping[str, Any], name: str, action: str) -> Any:
    """A fact by name.

    Raises BrokenError when the step did not report it.
    """
    if name not in facts:
        raise BrokenError(action, f"its answer has no '{name}': {dict(facts)}")
    return facts[name]


TAIL = 60
"""Lines of a log that are read."""
_LOG_LINES = 5
_SECONDS = 60.0


def explain(shell: WindowsShell, error: StepError, service: str) -> StepError:
    """The error with the end of a service's log, and its cause and hint if known.

    A log that cannot be read counts as empty.
    """
    path = paths.log_file(service)
    script = (
        f"if (Test-Path -LiteralPath {quote(path)}) {{\n"
        f"    Get-Content -LiteralPath {quote(path)} -Tail {TAIL}\n"
        "}\n"
    )
    lines: list[str] = []
    with suppress(LabError):
        done = shell.powershell(script, Deadline(_SECONDS))
        lines = [line.rstrip() for line in done.stdout.splitlines() if line.strip()]
    happened = error.happened
    if lines:
        happened += f"\n  last log lines of {service}:\n    " + "\n    ".join(lines[-_LOG_LINES:])
    else:
        happened += f"\n  {service} has written nothing to {path}"
    meanings = match((*error.happened.splitlines(), *lines))
    if not meanings:
        return StepError(error.doing, happened, error.hint)
    return StepError(
        error.doing, f"{happened}\n  that means: {meanings[0].cause}", meanings[0].hint
    )


@dataclass(frozen=True, slots=True)
class _Survey:
    """The facts of the first step, and when they were asked for (seconds since 1970)."""

    facts: Mapping[str, Any]
    began: float
    ended: float


REGISTER_SECONDS = 300.0
"""Seconds from the kubelet's start to its Node."""
HEALTH_SECONDS = 300.0


@dataclass(frozen=True)
class WindowsBringUp:
    """Joins one Windows node to its cluster.

    ``join``: gets credentials from the control plane; called when a step needs them, because tokens
    are short-lived. ``api``: waits for the Node and sets its pod CIDR. ``prepared``: whether
    :meth:`prepare` has run. ``in_place``: finds the names of the bundle's programs that need no
    copy.
    """

    plan: JoinPlan
    runner: Runner
    join: Callable[[], NodeCredentials]
    api: NodeApi
    prepared: bool = False
    in_place: Callable[[], Collection[str]] = tuple

    def prepare(self) -> None:
        """Do what needs no control plane, if the machine has not been a node before."""
        self._survey()
        if not self._was_node:
            for run in self._programs().values():
                run()

    def steps(self) -> Mapping[str, Callable[[], object]]:
        """The steps by name, in order, for every topology; one that is done changes nothing."""
        plan, run = self.plan, self.runner.run
        return {
            "survey": self._survey,
            "earlier-life": self._earlier_life,
            **{name: partial(self._unless_prepared, run) for name, run in self._programs().items()},
            "node": self._node,
            "join": self._join,
            "network": self._network,
            "proxy": lambda: run(plan.proxy(self.observed, self._reserve())),
            "routes": lambda: run(plan.routes()),
            "settled": self._settled,
        }

    def _unless_prepared(self, run: Callable[[], object]) -> None:
        if self._was_node or not self.prepared:
            run()

    def _programs(self) -> Mapping[str, Callable[[], object]]:
        plan, run = self.plan, self.runner.run
        return {
            "features": lambda: run(image_steps.Features(), restarts=True),
            "bundle": self._bundle,
            "containerd": self._containerd,
            "images": lambda: run(plan.images(self.observed)),
            "firewall": lambda: run(plan.firewall(), restarts=True),
        }

    @cached_property
    def observed(self) -> WindowsObserved:
        """The node's Windows version."""
        facts = self._surveyed.facts
        action = f"reading the Windows version of '{self.plan.node.name}'"
        return WindowsObserved(fact_of(facts, "build", action), fact_of(facts, "revision", action))

    @cached_property
    def _surveyed(self) -> _Survey:
        """The machine as it was before anything was changed."""
        self.runner.shell.wait(self.runner.seconds(REGISTER_SECONDS))
        began = time.time()
        facts = self.runner.run(self.plan.survey()).facts
        return _Survey(facts, began, time.time())

    @property
    def _left(self) -> tuple[str, ...]:
        """What an earlier membership has left of its network."""
        facts = self._surveyed.facts
        return leftovers(tuple(facts["there"]), tuple(facts["networks"]))

    @property
    def _has_joined(self) -> bool:
        return paths.KUBELET_CONF in self._surveyed.facts["there"]

    @property
    def _was_node(self) -> bool:
        return self._has_joined or bool(self._left)

    @cached_property
    def _is_member(self) -> bool:
        """Whether the cluster had the node before anything was changed."""
        name = self.plan.node.name
        return self._has_joined and self.api.registered(name, self.runner.seconds(REGISTER_SECONDS))

    def _survey(self) -> None:
        """Refuse a node that cannot work, before anything is changed."""
        plan, name = self.plan, self.plan.node.name
        survey, action = self._surveyed, f"looking at Windows node '{name}'"
        facts = survey.facts
        reason = unfit_windows(plan.manifest, plan.cluster.topology, self.observed)
        if reason:
            raise BrokenError(
                action, reason, "build its image from a newer ISO, or a fuller bundle"
            )
        if not fact_of(facts, "medium", action):
            words = f"no drive on it has the label '{medium.LABEL}'"
            raise BrokenError(action, words, f"attach the bundle medium to '{name}'")
        if not fact_of(facts, "address", action):
            words = f"no interface on it has the address {plan.node.address}"
            raise BrokenError(action, words, "see 'lab shell' and Get-NetIPAddress there")
        clock = fact_of(facts, "clock", action)
        if off := seconds_off(clock, survey.began, survey.ended):
            words = (
                f"its clock says {clock}, {off} s off this machine's: certificates would be invalid"
            )
            raise BrokenError(
                action, words, "'w32tm /query /status' there; docs/how-to/first-windows.md, check 7"
            )
        if self.prepared:
            return
        say(f"{name}: Windows build {self.observed}")
        if warning := evaluation_ending(facts.get("evaluation")):
            say(f"{name}: {warning}")

    def _earlier_life(self) -> None:
        """Clean up after a node that was deleted or whose join was interrupted."""
        name, left = self.plan.node.name, self._left
        if not self._was_node or self._is_member:
            return
        say(
            f"{name}: cleaning up after an earlier membership: {', '.join(left) or 'it had joined'}"
        )
        self.runner.run(self.plan.leave())
        if left:
            self.runner.run_though_cut_off(image_steps.HnsClean())
            self.runner.reboot()

    def _bundle(self) -> None:
        wanted = self.plan.bundle(self.in_place())
        if wanted.files:
            self.runner.run(wanted)

    def _containerd(self) -> None:
        self.runner.run(self.plan.containerd(self.observed), restarts=True)
        self.runner.run(image_steps.RegistryMirrors(()), restarts=True)

    def _node(self) -> None:
        self.runner.run(self.plan.files(self.join()))
        self.runner.run(self.plan.kubelet(self.observed, start=self.plan.by_hand))

    def _join(self) -> None:
        """Join the cluster; errors carry the last lines of the kubelet's log."""
        name, service = self.plan.node.name, KUBELET_SERVICE
        try:
            if not self.plan.by_hand:
                self.runner.run(self.plan.join(self.join()))
            self.runner.run(self.plan.kubelet(self.observed, start=True))
        except StepError as error:
            raise explain(self.runner.shell, error, service) from error
        try:
            self.api.set_pod_cidr(self.plan.node, self.runner.seconds(REGISTER_SECONDS))
        except BrokenError as error:
            failure = StepError(f"joining '{name}'", f"{error.doing}: {error.happened}", error.hint)
            raise explain(self.runner.shell, failure, service) from error
        if not self._is_member:
            say(f"{name}: joined")

    def _network(self) -> None:
        """Create HNS networks, which interrupts the node's network for seconds, then the plugin."""
        plan, name = self.plan, self.plan.node.name
        wanted = plan.hns_network()
        if wanted is not None and not self.runner.run(wanted).facts.get("made"):
            say(f"{name}: creating HNS networks; the node loses its network for some seconds")
            action = f"waiting for '{name}' to come back with its HNS networks"
            self.runner.wait_until(action, plan.hns_state(), self._lacks_networks)
        if plan.network.maker == "flannel":
            self._start_flannel()
        if plan.network.maker != "lab":
            action = f"waiting for HNS network '{plan.network.name}' on '{name}'"
            self._wait_for_foreign(action)
        if plan.network.maker == "flannel" and plan.network.kind == "L2Bridge":
            self._reserve()
        plugin = plan.plugin_files(self.observed)
        if plugin is not None:
            self.runner.run(plugin)

    def _start_flannel(self) -> None:
        self.runner.run(self.plan.flannel_files(self.join()))
        network = self.plan.network
        has_network = self._is_member and network.name in self._surveyed.facts["networks"]
        if network.kind == "Overlay" and not has_network:
            say(f"{self.plan.node.name}: starting flanneld; the node loses its network for seconds")
        self.runner.run_though_cut_off(self.plan.flannel_task())

    def _wait_for_foreign(self, action: str) -> None:
        """Wait until flannel or Calico has created the network; a failure shows its log."""
        try:
            self.runner.wait_until(action, self.plan.hns_state(), self._lacks_pod_network)
        except BrokenError as error:
            if self.plan.network.maker != "flannel":
                raise
            failure = StepError(error.doing, error.happened, error.hint)
            raise explain(self.runner.shell, failure, FLANNELD_TASK) from error

    def _lacks_networks(self, facts: Mapping[str, Any]) -> str:
        if facts["error"]:
            raise StepError(
                f"making HNS networks on '{self.plan.node.name}'",
                facts["error"],
                "see C:\\hybridlab\\log\\hns-make.log there",
            )
        if not facts["done"]:
            task = facts["tasks"].get("hns-make") or "gone"
            return f"hns-make is {task}, {_describe_networks(facts)}"
        return self._lacks_address(facts) or self._lacks(facts)

    def _lacks_pod_network(self, facts: Mapping[str, Any]) -> str:
        network = self.plan.network
        lacking = self._lacks_address(facts) or self._lacks(facts)
        if not lacking and network.maker == "flannel" and paths.SUBNET_ENV not in facts["there"]:
            return f"flanneld has not written '{paths.SUBNET_ENV}'"
        return lacking

    def _lacks_address(self, facts: Mapping[str, Any]) -> str:
        address = self.plan.node.address
        return (
            "" if facts["address"] else f"no interface has {address}, {_describe_networks(facts)}"
        )

    def _lacks(self, facts: Mapping[str, Any]) -> str:
        """How HNS' network of the pods is not the plan's: HNS may take another card by itself."""
        wanted = self.plan.network
        vsid = wanted.vni or 0
        made = [
            network
            for network in facts["networks"]
            if (network["name"], network["prefix"]) == (wanted.name, wanted.pod_cidr)
        ]
        if not made:
            words = f"HNS has no network '{wanted.name}' ({wanted.pod_cidr})"
            return f"{words}; {_describe_networks(facts)}"
        network = made[0]
        if network["management"] != self.plan.node.address:
            card = network["management"] or "no address"
            return f"HNS network '{wanted.name}' is on the card of {card}"
        if network["vsid"] != vsid:
            return f"HNS network '{wanted.name}' has VSID {network['vsid']}, not {vsid}"
        return ""

    def _reserve(self) -> str | None:
        wanted = self.plan.source_vip()
        if wanted is None:
            return None
        action = f"reserving an address on '{self.plan.node.name}'"
        address = fact_of(self.runner.run(wanted).facts, "address", action)
        cidr = self.plan.network.pod_cidr
        if IPv4Address(address) not in IPv4Network(cidr):
            words = (
                f"'{paths.SOURCE_VIP}' on it says {address}, which is not in its pod CIDR {cidr}"
            )
            hint = "delete the node from the cluster, then 'lab up' again: this removes what an "
            raise BrokenError(action, words, f"{hint}earlier membership left")
        return str(address)

    def _settled(self) -> None:
        """Wait until all services run, and will run after a restart."""
        action = f"waiting for the services of '{self.plan.node.name}'"
        self.runner.wait_until(action, self.plan.health(), service_ailments, HEALTH_SECONDS)


def _describe_networks(facts: Mapping[str, Any]) -> str:
    names = [
        f"'{network['name']}' ({network['prefix'] or 'no prefix'})" for network in facts["networks"]
    ]
    return f"its networks are {', '.join(names)}" if names else "it has no HNS network"
