"""The steps that bring a lab of namespaces up."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.plan.step import Step
from lab.providers.netns import (
    conntrack,
    daemons,
    holders,
    namespaces,
    netlink,
    preflight,
    responder_config,
)
from lab.providers.netns.compile import compile_intent
from lab.providers.netns.entry import Tell, list_holders
from lab.providers.netns.operations import NamespaceOperations, RulesetLoad
from lab.providers.provider import LabHandle
from lab.topology.intent import Intent

_FORM = "1"
"""Changes when the steps do something else for the same inputs."""
_SECONDS = 60.0
_SECONDS_EACH = 0.1
"""On top, for each namespace; measured on 2 cores: 2 ms of network and 3 ms of services."""


@dataclass(frozen=True)
class NetnsBringUp:
    """One lab's way up; ``intent`` is what its machines can really have."""

    lab: LabHandle
    intent: Intent
    python: str

    def steps(self) -> tuple[Step, ...]:
        """In order: ``holder``, ``network``, ``services``, ``responder``, ``daemons``, ``ready``.

        ``daemons`` only where the intent has any.
        """
        token = self.lab.token
        return (
            Step("holder", _digest((token, str(self.lab.directory))), self._holder),
            Step("network", _digest(self._network_inputs()), self._network),
            Step("services", _digest(f"{name}\n{text}" for name, text in self._rules), self._load),
            Step("responder", _digest((token, self._answers)), self._responder),
            *self._daemons(),
            Step("ready", _digest((token,)), self._ready),
        )

    def _daemons(self) -> tuple[Step, ...]:
        placed = daemons.list_daemons(self.intent)
        if not placed:
            return ()
        return (Step("daemons", _digest(map(repr, (self.lab.token, *placed))), self._start),)

    @cached_property
    def _operations(self) -> tuple[NamespaceOperations, ...]:
        return compile_intent(self.intent)

    @cached_property
    def _rules(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            (one.namespace, operation.text)
            for one in self._operations
            for operation in one.operations
            if isinstance(operation, RulesetLoad)
        )

    @cached_property
    def _answers(self) -> str:
        return responder_config.configuration(self.intent)

    def _network_inputs(self) -> Iterable[str]:
        for one in self._operations:
            yield one.namespace
            for operation in one.operations:
                if not isinstance(operation, RulesetLoad):
                    yield repr(operation)
        for machine in self.intent.machines:
            for pod in machine.pods:
                yield repr(pod.resolver)
            yield repr(machine.resolver)

    def _inside(self, doing: str, function: Callable[[Deadline], None]) -> None:
        deadline = Deadline(_SECONDS + _SECONDS_EACH * len(self._operations))

        def run(_: Tell) -> None:
            function(deadline)

        holders.enter_holder(self.lab).call(f"{doing} of lab '{self.lab.name}'", run, deadline)

    def _holder(self) -> None:
        holders.end_all_holders(
            lambda: (
                one
                for one in list_holders(starting=True)
                if one.token == self.lab.token
                or (one.lab, one.directory) == (self.lab.name, self.lab.directory)
            )
        )
        holders.start_holder(self.lab, self.python)

    def _network(self) -> None:
        def make(_: Deadline) -> None:
            namespaces.create([one.namespace for one in self._operations])
            netlink.apply_operations(self._operations)
            for machine in self.intent.machines:
                namespaces.write_resolvers((machine, *machine.pods))
            preflight.note_need(preflight.lab_need(self.intent))

        self._inside("making the network", make)

    def _load(self) -> None:
        def load(_: Deadline) -> None:
            namespaces.load_rulesets(self._rules)
            conntrack.forget_stale(self.intent.machines)

        self._inside("programming the Services", load)

    def _responder(self) -> None:
        self._inside(
            "starting the responder",
            lambda deadline: responder_config.start_responder(self.python, self._answers, deadline),
        )

    def _start(self) -> None:
        self._inside(
            "starting the daemons", lambda deadline: daemons.start_daemons(self.intent, deadline)
        )

    def _ready(self) -> None:
        logical = self.intent.logical
        if logical:
            self._inside(
                "waiting for the logical network",
                lambda deadline: daemons.wait_for_logical_network(
                    logical,
                    deadline,
                    lambda: daemons.require_daemons(
                        self.intent, f"bringing up lab '{self.lab.name}'"
                    ),
                ),
            )
        self._inside(
            "waiting for the links",
            lambda deadline: netlink.wait_for_carrier(self._operations, deadline),
        )
        wrong = daemons.find_ailment(holders.enter_holder(self.lab).pid, self.intent)
        if wrong:
            raise BrokenError(f"bringing up lab '{self.lab.name}'", wrong, "run 'lab up' again")


def _digest(parts: Iterable[str]) -> str:
    made = hashlib.sha256(_FORM.encode())
    for part in parts:
        made.update(part.encode())
        made.update(b"\0")
    return made.hexdigest()
