"""Compare a lab's namespaces with freshly created ones.

The intent is created a second time in temporary namespaces. Kernel defaults and everything that
depends on the kernel version are then the same on both sides, and bring-up need not record any
state for this. Daemons are not started there, so a rule excludes the state that they create.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from lab._deadline import Deadline
from lab.facts.difference import StateDifference
from lab.facts.state import STATE_COMMAND, compare_states, read_state
from lab.providers.netns import holders, isolation, namespaces, netlink, responder_config
from lab.providers.netns.compile import compile_intent
from lab.providers.netns.entry import call_isolated
from lab.providers.netns.isolation import RESOLVER_FILE
from lab.providers.netns.machine import NetnsMachine, run_captured
from lab.providers.netns.operations import RulesetLoad
from lab.providers.provider import LabHandle
from lab.remote.shell import Completed
from lab.topology.intent import Intent


@dataclass(frozen=True, slots=True)
class Replica:
    """A second copy of a lab; ``intent`` contains only what namespaces can provide."""

    intent: Intent
    python: str

    def states(self, places: Sequence[str], deadline: Deadline) -> Mapping[str, Completed]:
        """The output of :data:`STATE_COMMAND` in each namespace of the copy.

        Raises
        ------
        OSError
            When the kernel refuses the namespaces.
        LabError
            When something cannot be created in them in time.

        """
        return call_isolated(
            "making the lab's namespaces a second time",
            lambda: self._inside(places, deadline),
            deadline,
        )

    def _inside(self, places: Sequence[str], deadline: Deadline) -> dict[str, Completed]:
        operations = compile_intent(self.intent)
        namespaces.create([one.namespace for one in operations])
        netlink.apply_operations(operations)
        for machine in self.intent.machines:
            namespaces.write_resolvers((machine, *machine.pods))
        namespaces.load_rulesets(
            tuple(
                (one.namespace, each.text)
                for one in operations
                for each in one.operations
                if isinstance(each, RulesetLoad)
            )
        )
        configured = responder_config.configuration(self.intent)
        responder_config.start_responder(self.python, configured, deadline)
        netlink.wait_for_carrier(operations, deadline)
        pods = {pod.name for machine in self.intent.machines for pod in machine.pods}
        return {name: _state(name, pod=name in pods) for name in places}


def _state(name: str, *, pod: bool) -> Completed:
    isolation.unshare(isolation.CLONE_NEWNS | isolation.CLONE_NEWUTS)
    namespaces.enter_machine(name, pod=pod)
    try:
        return run_captured(STATE_COMMAND)
    finally:
        with suppress(OSError):  # a machine without its own resolver file has none mounted
            isolation.unmount(RESOLVER_FILE)


def find_deviations(
    lab: LabHandle, intent: Intent, python: str, places: Sequence[str], deadline: Deadline
) -> Mapping[str, tuple[StateDifference, ...]]:
    """The differences from a fresh copy, by namespace; ``intent`` as for :class:`Replica`.

    Raises
    ------
    LabError
        When the lab is not up, or the copy cannot be created in time.
    OSError
        When the kernel refuses the copy's namespaces.

    """
    made = Replica(intent, python).states(places, deadline)
    entry = holders.enter_holder(lab)
    pods = {pod.name for machine in intent.machines for pod in machine.pods}
    daemons = {one.name for one in intent.everything() if one.daemons}
    found = {}
    for name in places:
        now = NetnsMachine(name, entry, name in pods).run(STATE_COMMAND, deadline)
        before = read_state(made[name].stdout, made[name].stderr)
        found[name] = compare_states(
            before, read_state(now.stdout, now.stderr), daemons=name in daemons
        )
    return found
