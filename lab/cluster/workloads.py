"""The workload checks of a cluster, made: objects, waits, and what the kubelets say."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError
from lab.cluster.api import Api, Object, RefusedError, namespaced
from lab.cluster.labels import NAMESPACE
from lab.cluster.observed import read_pod
from lab.cluster.probe_manifests import ObjectOwner
from lab.cluster.waiting import Objects, wait_for
from lab.cluster.workload_checks import (
    ENVIRONMENT,
    Values,
    WorkloadResult,
    ended,
    judge,
    nodes,
    pod,
    pod_name,
    sources,
    unmade,
)
from lab.scenario.terms import Os
from lab.topology.intent import Intent, MachineIntent

_CLEAN_SECONDS = 15.0


class Workloads:
    """The checks of every node; see :mod:`lab.cluster.workload_checks`.

    Parameters
    ----------
    api
        The cluster's API server.
    intent
        Whose nodes are checked.
    owner
        The lab, and the token of the run whose namespace the checks use.
    images
        Full name of the agnhost image by operating system.

    """

    def __init__(
        self, api: Api, intent: Intent, owner: ObjectOwner, images: Mapping[Os, str]
    ) -> None:
        self._api = api
        self._nodes = nodes(intent)
        self._owner = owner
        self._images = images

    def run(self, deadline: Deadline) -> tuple[WorkloadResult, ...]:
        """Make every check; the namespace is there already. Leaves nothing. Never raises.

        A node whose pod does not end in time has ``probe-error`` for all its checks.
        """
        values = Values(secrets.token_hex(8), secrets.token_hex(8))
        try:
            self._deploy(values, deadline)
            said = self._await(deadline)
            return tuple(
                result
                for machine in self._nodes
                for result in self._judged(machine, said, values, deadline)
            )
        except LabError as error:
            why = f"{error.doing}: {error.happened}"
            return tuple(result for machine in self._nodes for result in unmade(machine, why))
        finally:
            self._remove()

    def _deploy(self, values: Values, deadline: Deadline) -> None:
        for kind, one in zip(("secrets", "configmaps"), sources(self._owner, values), strict=True):
            self._anew(namespaced(kind, NAMESPACE), one, deadline)
        for machine in self._nodes:
            made = pod(machine, self._owner, self._images)
            self._anew(namespaced("pods", NAMESPACE), made, deadline)

    def _anew(self, path: str, one: Object, deadline: Deadline) -> None:
        """What a killed run has left holds other values."""
        name = f"{path}/{one['metadata']['name']}"
        self._api.patiently(f"removing {name}", lambda: self._api.remove(name, deadline), deadline)
        self._api.have(path, one, deadline)

    def _await(self, deadline: Deadline) -> dict[str, Object | str]:
        """Each node's pod when all have ended; where one has not, what it waits for."""
        names = {machine.name: pod_name(machine.name) for machine in self._nodes}
        seen: dict[str, Object] = {}

        def missing(there: Objects) -> str:
            seen.clear()
            seen.update(there)
            late = [name for name in names.values() if name not in there or not ended(there[name])]
            return ", ".join(late)

        with suppress(BrokenError):  # who is late is looked at below
            wait_for(
                self._api,
                namespaced("pods", NAMESPACE),
                missing,
                "waiting for the workload checks",
                deadline,
            )
        return {node: _state(seen.get(name)) for node, name in names.items()}

    def _judged(
        self,
        machine: MachineIntent,
        said: Mapping[str, Object | str],
        values: Values,
        deadline: Deadline,
    ) -> tuple[WorkloadResult, ...]:
        found = said[machine.name]
        if isinstance(found, str):
            return unmade(machine, found)
        path = f"{namespaced('pods', NAMESPACE)}/{pod_name(machine.name)}/log"
        try:
            log = self._api.ask("GET", path, deadline, query={"container": ENVIRONMENT})
            summary = self._summary(machine.name, deadline)
        except LabError as error:
            return unmade(machine, f"{error.doing}: {error.happened}")
        return judge(machine, found, str(log.get("message", "")), values, summary)

    def _summary(self, node: str, deadline: Deadline) -> Mapping[str, Any] | str:
        try:
            return self._api.ask("GET", f"/api/v1/nodes/{node}/proxy/stats/summary", deadline)
        except RefusedError as error:
            return f"the kubelet gives no metrics: {error.happened}"

    def _remove(self) -> None:
        deadline = Deadline(_CLEAN_SECONDS)
        names = [(namespaced("pods", NAMESPACE), pod_name(one.name)) for one in self._nodes]
        names += [(namespaced(kind, NAMESPACE), "workload") for kind in ("secrets", "configmaps")]
        for path, name in names:
            with suppress(LabError):  # the namespace goes with all that is in it
                self._api.remove(f"{path}/{name}", deadline)


def _state(found: Object | None) -> Object | str:
    if found is None:
        return "its pod was never made"
    if ended(found):
        return found
    one = read_pod(found)
    return f"pod '{one.name}' is {one.phase}" + (f": {one.trouble}" if one.trouble else "")
