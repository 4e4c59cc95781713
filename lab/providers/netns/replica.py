"""What a lab's namespaces differ in from how the lab makes them.

The intent is made a second time, in a world of its own that ends with the look: the kernel's own
defaults and what depends on the kernel's version are then the same on both sides, and bringing a
lab up records nothing for it. Daemons are not started there, so what they make is left out by rule.
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
    """The same lab made again; ``intent`` is what its machines can really have."""

    intent: Intent
    python: str

    def states(self, places: Sequence[str], deadline: Deadline) -> Mapping[str, Completed]:
        """What :data:`STATE_COMMAND` answers in each of the namespaces as they are made.

        Raises
        ------
        OSError
            When the kernel refuses the world.
        LabError
            When something in it cannot be created, or not in time.

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
        with suppress(OSError):  # a machine without a resolver file of its own has none laid over
            isolation.unmount(RESOLVER_FILE)


def find_deviations(
    lab: LabHandle, intent: Intent, python: str, places: Sequence[str], deadline: Deadline
) -> Mapping[str, tuple[StateDifference, ...]]:
    """What is not as made in each of the namespaces; ``intent`` as for :class:`Replica`.

    Raises
    ------
    LabError
        When the lab is not up, or its namespaces cannot be made again in time.
    OSError
        When the kernel refuses a second world.

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
