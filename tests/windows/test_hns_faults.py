"""Faults of a Windows node's HNS: what their commands do where something does not answer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cluster_nodes import decided

from lab.topology.routing import bare
from lab.windows.faults import hns

KUBECTL = """#!/bin/sh
case "$*" in
*" get "*) {answers} ;;
*) echo "$*" >> {calls} ;;
esac
"""


def heal(tmp_path: Path, answers: str) -> tuple[int, list[str]]:
    """Heal a lost endpoint of win1-p1 with this ``kubectl get``: exit code, and other calls."""
    plan = decided("overlay")
    pod = plan.intent.machine(plan.node.name).pods[0]
    change = hns.HNS_ENDPOINT_REMOVED.change(plan.intent, plan.node.name, pod.name)
    (deletion,) = change.undo
    calls, kubectl = tmp_path / "calls", tmp_path / "kubectl"
    calls.touch()
    given = answers.format(name=pod.name, address=bare(pod.address))
    kubectl.write_text(KUBECTL.format(answers=given, calls=calls))
    kubectl.chmod(0o755)
    command = ["sh", "-c", deletion.line]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, timeout=60, check=False)
    return done.returncode, calls.read_text().splitlines()


def test_a_pod_with_its_old_address_is_deleted(tmp_path):
    code, calls = heal(tmp_path, "echo {name} {address}")
    assert code == 0
    (call,) = calls
    assert " delete pods win1-p1 " in call


@pytest.mark.parametrize("answers", ["echo {name} 10.244.9.9", "true"])
def test_a_pod_that_was_made_again_or_is_gone_is_left_alone(answers, tmp_path):
    assert heal(tmp_path, answers) == (0, [])


def test_an_api_that_does_not_answer_is_no_success(tmp_path):
    code, calls = heal(tmp_path, "exit 7")
    assert (code, calls) == (7, [])


def test_an_object_that_cannot_be_opened_is_not_changed():
    script = hns._modified("Endpoint", "$true", "Add", {"Type": "ACL"})
    parts = ("HcnOpenEndpoint([ref]", "throw ('HcnOpenEndpoint", "HcnModifyEndpoint($handle")
    assert script.index(parts[0]) < script.index(parts[1]) < script.index(parts[2])
    assert script.endswith("finally { $null = [Hybridlab.Hcn]::HcnCloseEndpoint($handle) } }")
