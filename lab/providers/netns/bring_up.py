"""The steps that bring a lab of namespaces up, and its comparison with freshly created ones.

For the comparison the intent is created a second time in temporary namespaces. Kernel defaults and
everything that depends on the kernel version are then the same on both sides, and bring-up need not
record any state for this. Daemons are not started there, so a rule excludes the state that they
create.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError
from lab.plan.step import Step
from lab.providers.netns import (
    conntrack,
    daemons,
    holders,
    isolation,
    namespaces,
    netlink,
    preflight,
)
from lab.providers.netns.child_calls import call_isolated
from lab.providers.netns.compile import compile_intent, configuration
from lab.providers.netns.holders import list_holders
from lab.providers.netns.machine import NetnsMachine, run_captured
from lab.providers.netns.operations import NamespaceOperations, RulesetLoad
from lab.providers.provider import LabHandle
from lab.shells.shell import Completed
from lab.topology.gateways import moving_addresses
from lab.topology.intent import Intent
from lab.topology.links import link_scripts

if TYPE_CHECKING:
    from lab.facts.difference import Difference

_STEPS_VERSION = "1"
"""Increment when the steps do something different for the same inputs."""
_SECONDS = 60.0
_SECONDS_EACH = 0.1
"""Added per namespace; measured on 2 cores: 2 ms for the network and 3 ms for services."""


@dataclass(frozen=True)
class NetnsBringUp:
    """Bring-up of one lab; ``intent`` contains only what namespaces can provide."""

    lab: LabHandle
    intent: Intent
    python: str

    def steps(self) -> tuple[Step, ...]:
        """``holder``, ``network``, ``services``, ``responder``, ``daemons``, ``links``, ``ready``.

        ``daemons`` and ``links`` are omitted if the intent has none.
        """
        token = self.lab.token
        placed = daemons.list_daemons(self.intent)
        rules = (f"{name}\n{text}" for name, text in self._rules)
        start = self._step(
            "daemons", "starting the daemons", map(repr, (token, *placed)), self._start_daemons
        )
        scripts = link_scripts(self.intent)
        links = self._step(
            "links",
            "impairing the links",
            map(repr, (token, *scripts.items())),
            self._impair_links,
        )
        return (
            Step("holder", _digest((token, str(self.lab.directory))), self._replace_holder),
            self._step(
                "network", "making the network", self._network_inputs(), self._make_namespaces
            ),
            self._step("services", "programming the Services", rules, self._load_rulesets),
            self._step(
                "responder",
                "starting the responder",
                (token, self._responder_settings),
                self._start_responder,
            ),
            *((start,) if placed else ()),
            *((links,) if scripts else ()),
            Step("ready", _digest((token,)), self._require_ready),
        )

    def deviations(
        self, places: Sequence[str], deadline: Deadline
    ) -> Mapping[str, tuple[Difference, ...] | LabError]:
        """The differences of the lab's namespaces from a fresh copy, by namespace.

        A namespace whose state, or whose copy's state, cannot be read has the error. Raises
        LabError when the lab is not up, or the copy cannot be created in time. Raises OSError when
        the kernel refuses the copy's namespaces.
        """
        from lab.facts.churn import churn  # noqa: PLC0415  not for bring-up
        from lab.facts.questions import STATE_COMMAND  # noqa: PLC0415  not for bring-up
        from lab.facts.state import compare_states, read_state  # noqa: PLC0415  not for bring-up

        pods = {pod.name for machine in self.intent.machines for pod in machine.pods}
        with_daemons = {
            machine.name: machine for machine in self.intent.everything() if machine.daemons
        }

        def copy() -> dict[str, Completed]:
            for step in (
                self._make_namespaces,
                self._load_rulesets,
                self._start_responder,
                self._impair_links,
                self._await_links,
            ):
                step(deadline)
            return {name: _capture_output(STATE_COMMAND, name, pod=name in pods) for name in places}

        made = call_isolated(
            "making the lab's namespaces a second time", copy, deadline, dict[str, Completed]
        )
        entry = holders.enter_holder(self.lab)
        mtus = self.intent.mtus()

        def compare(name: str) -> tuple[Difference, ...]:
            now = NetnsMachine(name, entry, name in pods).run(STATE_COMMAND, deadline)
            machine = with_daemons.get(name)
            held = moving_addresses(self.intent, machine) if machine else frozenset[str]()
            return compare_states(
                read_state(made[name].stdout, made[name].stderr),
                read_state(now.stdout, now.stderr),
                churn(kubernetes=False, daemons=machine is not None, held=held, mtus=mtus),
            )

        differences: dict[str, tuple[Difference, ...] | LabError] = {}
        for name in places:
            try:
                differences[name] = compare(name)
            except LabError as error:
                differences[name] = error
        return differences

    @cached_property
    def _operations(self) -> tuple[NamespaceOperations, ...]:
        return compile_intent(self.intent)

    @cached_property
    def _rules(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            (operations.namespace, operation.text)
            for operations in self._operations
            for operation in operations.operations
            if isinstance(operation, RulesetLoad)
        )

    @cached_property
    def _responder_settings(self) -> str:
        return configuration(self.intent)

    def _network_inputs(self) -> Iterable[object]:
        for operation in self._operations:
            yield operation.namespace
            yield from (each for each in operation.operations if not isinstance(each, RulesetLoad))
        for machine in self.intent.machines:
            yield from (repr(pod.resolver) for pod in machine.pods)
            yield repr(machine.resolver)

    def _step(
        self, name: str, action: str, inputs: Iterable[object], run: Callable[[Deadline], None]
    ) -> Step:
        return Step(name, _digest(inputs), lambda: self._inside(action, run))

    def _inside(self, action: str, function: Callable[[Deadline], None]) -> None:
        deadline = Deadline(_SECONDS + _SECONDS_EACH * len(self._operations))
        entry = holders.enter_holder(self.lab)
        entry.call(f"{action} of lab '{self.lab.name}'", lambda _: function(deadline), deadline)

    def _replace_holder(self) -> None:
        holders.end_all_holders(
            lambda: (
                holder
                for holder in list_holders(starting=True)
                if holder.token == self.lab.token
                or (holder.lab, holder.directory) == (self.lab.name, self.lab.directory)
            )
        )
        holders.start_holder(self.lab, self.python)

    def _make_namespaces(self, _: Deadline) -> None:
        namespaces.create([operation.namespace for operation in self._operations])
        netlink.apply_operations(self._operations)
        for machine in self.intent.machines:
            namespaces.write_resolvers((machine, *machine.pods))
        preflight.note_need(preflight.lab_need(self.intent))

    def _load_rulesets(self, _: Deadline) -> None:
        namespaces.load_rulesets(self._rules)
        conntrack.forget_stale(self.intent.machines)

    def _start_responder(self, deadline: Deadline) -> None:
        daemons.start_responder(self.python, self._responder_settings, deadline)

    def _start_daemons(self, deadline: Deadline) -> None:
        daemons.start_daemons(self.intent, deadline)

    def _impair_links(self, _: Deadline) -> None:
        for name, text in link_scripts(self.intent).items():
            namespaces.enter(name)
            done = run_captured(("sh", "-c", text))
            if done.code:
                complaint = done.stderr.strip() or f"exit code {done.code}"
                raise BrokenError(f"impairing the link of '{name}'", complaint)

    def _await_links(self, deadline: Deadline) -> None:
        netlink.wait_for_carrier(self._operations, deadline)

    def _await_logical_network(self, deadline: Deadline) -> None:
        action = f"bringing up lab '{self.lab.name}'"
        if self.intent.logical:
            daemons.wait_for_logical_network(
                self.intent.logical, deadline, lambda: daemons.require_daemons(self.intent, action)
            )

    def _require_ready(self) -> None:
        if self.intent.logical:
            self._inside("waiting for the logical network", self._await_logical_network)
        self._inside("waiting for the links", self._await_links)
        wrong = daemons.find_ailment(holders.enter_holder(self.lab).pid, self.intent)
        if wrong:
            raise BrokenError(f"bringing up lab '{self.lab.name}'", wrong, "run 'lab up' again")


def _capture_output(command: Sequence[str], name: str, *, pod: bool) -> Completed:
    """A command's output in a machine or pod of the copy."""
    isolation.unshare(isolation.CLONE_NEWNS | isolation.CLONE_NEWUTS)
    namespaces.enter_machine(name, pod=pod)
    try:
        return run_captured(command)
    finally:
        with suppress(OSError):  # a machine without its own resolver file has none mounted
            isolation.unmount(isolation.RESOLVER_FILE)


def _digest(parts: Iterable[object]) -> str:
    made = hashlib.sha256(_STEPS_VERSION.encode())
    for part in parts:
        made.update((part if isinstance(part, str) else repr(part)).encode())
        made.update(b"\0")
    return made.hexdigest()
