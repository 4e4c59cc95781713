"""A Windows node that joins, as a shell: it keeps state and runs no PowerShell.

Every step answers as its script should: from its settings on the node, and from what earlier steps
have done. Tests script the failures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from stand_in.guest import habits

from lab._deadline import Deadline
from lab._errors import DeadlineError
from lab.shells.shell import Completed, UnreachableError

Settings = dict[str, Any]


_STEP = re.compile(r"-File C:\\hybridlab\\(?P<name>[a-z-]+)\.ps1 ")


@dataclass
class Node:
    """The state of the machine, and the shell on it."""

    name: str = "win1"
    away: bool = False
    """Whether nothing reaches it."""
    files: dict[str, bytes] = field(default_factory=dict)
    """What was sent and not removed, by path."""
    lines: list[str] = field(default_factory=list)
    """Command lines and scripts that were run."""
    build: int = 20348
    revision: int = 587
    medium: str = "D:\\"
    has_address: bool = True
    clock_off: int = 0
    """Hours."""
    evaluation: int | None = None
    there: set[str] = field(default_factory=set)
    """Paths of existing files."""
    texts: dict[str, str] = field(default_factory=dict)
    services: dict[str, dict[str, Any]] = field(default_factory=dict)
    networks: list[dict[str, Any]] = field(default_factory=list)
    given: dict[str, Settings] = field(default_factory=dict)
    """Step to the settings of its last run."""
    tasks: dict[str, str] = field(default_factory=dict)
    once: dict[str, list[bool]] = field(default_factory=dict)
    """Step to whether it asks for a reboot, run by run."""
    vip: str = "10.244.3.2"
    hns_error: str = ""
    join_error: str = ""
    kubelet_log: str = ""
    looks_until_made: int = 0
    """Number of HNS queries before its networks exist."""
    boots: int = 0
    steps: list[str] = field(default_factory=list)
    """Names of the steps that were run, in order."""
    changed: list[str] = field(default_factory=list)
    before: dict[str, Callable[[], Completed | None]] = field(default_factory=dict)
    """Step to a function that is called first; its answer replaces that of the step."""

    def run(self, command: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        assert not stdin
        self.wait(deadline)
        line = " ".join(command)
        self.lines.append(line)
        if step := _STEP.search(line):
            return self._step(step["name"])
        if "shutdown.exe" in line:
            self.boots += 1
            return Completed(0, "", "")
        if "LastBootUpTime" in line:
            booted = f"2026-11-21T{self.boots:02}:00:00Z {0 if self.boots else 5000}"
            return Completed(0, booted, "")
        assert "Get-Content" in line, line
        return Completed(0, self.kubelet_log, "")

    def powershell(self, script: str, deadline: Deadline) -> Completed:
        return self.run((script,), deadline)

    def put(self, content: bytes, path: str, mode: int, deadline: Deadline) -> None:
        assert mode == 0o600
        self.wait(deadline)
        self.files[path] = content

    def remove(self, path: str) -> None:
        del self.files[path]

    def wait(self, deadline: Deadline) -> None:
        if self.away:
            raise UnreachableError("a double", "connection refused")
        if deadline.left() == 0.0:
            raise DeadlineError("a double", "no time was left")

    def _sent(self, name: str) -> str:
        return self.files[f"C:\\hybridlab\\{name}"].decode()

    def _step(self, name: str) -> Completed:
        given = json.loads(self._sent(f"{name}.json"))
        assert self._sent("hybridlab.psm1")
        self.steps.append(name)
        first = self.before.get(name, lambda: None)()
        if first is not None:
            return first
        own = getattr(self, "_" + name.replace("-", "_"), partial(self._other, name))
        try:
            changed, facts = own(given)
        except ValueError as error:
            said = {"step": name, "error": str(error)}
            return Completed(1, json.dumps(said), "")
        reboot = bool(self.once.get(name)) and self.once[name].pop(0)
        if changed:
            self.changed.append(name)
        said = {"step": name, "changed": changed, "reboot": reboot, "facts": facts}
        return Completed(3010 if reboot else 0, json.dumps(said), "")

    # ---- the steps

    def _node_survey(self, given: Settings) -> tuple[bool, Settings]:
        return False, {
            "build": self.build,
            "revision": self.revision,
            "computer": "WIN1",
            "clock": f"{datetime.now(UTC) + timedelta(hours=self.clock_off):%Y-%m-%dT%H:%M:%SZ}",
            "evaluation": self.evaluation,
            "address": self.has_address,
            "medium": self.medium,
            "there": [
                path
                for path in given["paths"]
                if any(f"{one}\\".startswith(f"{path}\\") for one in self.there)
            ],
            "networks": [network["name"] for network in self.networks],
            "registered": sorted(self.services),
        }

    def _node_leave(self, given: Settings) -> tuple[bool, Settings]:
        self.given.clear()
        gone = {one for one in self.there for path in given["paths"] if one.startswith(path)}
        self.there -= gone
        for name in given["services"]:
            self.services.pop(name, None)
        for name in given["tasks"]:
            self.tasks.pop(name, None)
        for path in gone:
            self.texts.pop(path, None)
        return bool(gone), {"paths": sorted(gone), "services": [], "tasks": []}

    def _hns_clean(self, _: Settings) -> tuple[bool, Settings]:
        changed = bool(self.networks)
        self.networks.clear()
        return changed, {}

    def _other(self, name: str, given: Settings) -> tuple[bool, Settings]:
        """A step that changes something where its settings are others than before."""
        changed = self.given.get(name) != given
        self.given[name] = given
        if name == "containerd":
            self.services[name] = {"state": "Running", "depends": [], "command": "x"}
        return changed, {}

    def _put(self, path: str, text: str) -> bool:
        changed = self.texts.get(path) != text
        self.texts[path] = text
        self.there.add(path)
        return changed

    def _node_files(self, given: Settings) -> tuple[bool, Settings]:
        written = [file["path"] for file in given["files"] if self._put(file["path"], file["text"])]
        return bool(written), {"written": written, "removed": []}

    def _node_service(self, given: Settings) -> tuple[bool, Settings]:
        name = given["service"]
        wanted: Settings = {"command": given["command"], "depends": given["depends"]}
        there = self.services.get(name, {"state": "Stopped"})
        changed = {key: there.get(key) for key in wanted} != wanted
        started = given["start"] and (changed or there["state"] != "Running")
        state = "Running" if started else there["state"]
        self.services[name] = {**there, **wanted, "state": state}
        return changed or started, {"command": given["command"], "state": state, "started": started}

    def _node_join(self, given: Settings) -> tuple[bool, Settings]:
        if given["joined"] in self.there:
            return False, {"joined": False, "said": []}
        assert json.loads(given["document"])["kind"] == "JoinConfiguration"
        if self.join_error or (refused := habits.kubeadm_refuses(self._sent("node-join.ps1"))):
            raise ValueError(self.join_error or refused)
        self.there.add(given["joined"])
        self.services["kubelet"]["state"] = "Running"
        return True, {"joined": True, "said": ["This node has joined the cluster"]}

    def _hns_network(self, given: Settings) -> tuple[bool, Settings]:
        wanted = [json.loads(network) for network in given["networks"]]
        if {one["Name"] for one in wanted} <= {network["name"] for network in self.networks}:
            return False, {"made": True, "task": ""}
        assert self._sent("hns-make.ps1")
        self.tasks["hns-make"] = "Running"
        self._making = wanted
        return True, {"made": False, "task": "Running"}

    def _hns_state(self, given: Settings) -> tuple[bool, Settings]:
        making = self.tasks.get("hns-make") == "Running"
        if making and self.looks_until_made:
            self.looks_until_made -= 1
        elif making:
            self.tasks["hns-make"] = "Ready"
            if not self.hns_error:
                self._make(given["address"])
        done = self.tasks.get("hns-make") == "Ready"
        return False, {
            "address": True,
            "networks": self.networks,
            "endpoints": [],
            "done": done,
            "error": self.hns_error if done else "",
            "tasks": self.tasks,
            "there": [path for path in given["files"] if path in self.there],
        }

    def _make(self, address: str) -> None:
        """Networks by cluster.psm1: a card that is in no switch yet is named, another is not."""
        for one in self._making:
            if one["Name"] not in {other["name"] for other in self.networks}:
                own = not self.networks
                made = {
                    "name": one["Name"],
                    "type": one["Type"],
                    "prefix": one["Subnets"][0]["AddressPrefix"],
                    "management": address if own else habits.OPEN_CARD,
                    "vsid": 0,
                }
                self.networks.append(made)

    def _node_task(self, given: Settings) -> tuple[bool, Settings]:
        assert self._sent("node-keep.ps1")
        assert json.loads(self.texts[given["settings"]])["program"].endswith("kube-log-runner.exe")
        changed = self.tasks.get(given["task"]) != "Running"
        self.tasks[given["task"]] = "Running"
        if given["task"] == "flanneld":
            keeper = json.loads(self.texts[given["settings"]])
            self.there -= set(keeper["stale"])
            self.networks[:] = [
                network
                for network in self.networks
                if network["name"] != keeper["network"] or network["vsid"] == keeper["vsid"]
            ]
            self._flannel(keeper["address"])
        return changed, {"state": "Running", "started": changed}

    def _flannel(self, address: str) -> None:
        """flanneld uses the adapter that has the node's address."""
        conf = json.loads(self.texts["C:\\etc\\kube-flannel\\net-conf.json"])
        if conf["Backend"]["Type"] == "vxlan":
            own = {
                "name": "flannel.4096",
                "type": "Overlay",
                "prefix": "10.244.3.0/24",
                "management": address,
                "vsid": 4096,
            }
            adapter = "vEthernet (Ethernet)" if self.networks else "Ethernet"
            refused = habits.hns_refuses(adapter, switched=bool(self.networks))
            if own not in self.networks:
                if refused:
                    self.kubelet_log = (
                        "E0510 14:32:08.5 main.go:359] Error registering network: failed to "
                        f"create HostComputeNetwork flannel.4096: {refused}\n"
                    )
                    return
                self.networks.append(own)
        self.there.add("C:\\run\\flannel\\subnet.env")

    def _source_vip(self, given: Settings) -> tuple[bool, Settings]:
        return self._put(given["answer_file"], self.vip), {"address": self.vip}

    def _node_health(self, given: Settings) -> tuple[bool, Settings]:
        usual = {"state": "missing", "start": "Automatic", "depends": []}
        services = [
            {key: (usual | self.services.get(name, {}))[key] for key in usual} | {"name": name}
            for name in given["services"]
        ]
        tasks = [{"name": name, "state": self.tasks.get(name, "")} for name in given["tasks"]]
        return False, {"services": services, "tasks": tasks}
