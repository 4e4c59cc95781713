"""Repair runs what a difference advises, on a Windows node by PowerShell."""

from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.explain.check import differs
from lab.facts.command_lines import in_powershell
from lab.facts.difference import Difference
from lab.lifecycle import repair as module
from lab.lifecycle.repair import _run, _wait_for_effect
from lab.shells.shell import Completed
from lab.topology.subject import UnitSubject


class Node:
    """A machine that keeps the words that it was to run."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.ran: list[tuple[str, ...]] = []

    def run(self, words: tuple[str, ...], deadline: Deadline) -> Completed:
        assert deadline.left()
        self.ran.append(words)
        return Completed(self.code, "", "no such service\nmore" if self.code else "")


def run(mends: str, code: int = 0) -> tuple[Node, list[str]]:
    node, said = Node(code), list[str]()
    provider = SimpleNamespace(machine=lambda *_: node)
    opened = SimpleNamespace(provider=provider, handle=None, intent=None)
    finding = differs(
        "kubelet-down", "win", UnitSubject("kubelet"), "running", "Stopped", "", mends
    )
    _run(opened, finding, said.append)  # type: ignore[arg-type]
    return node, said


def test_a_fix_for_windows_is_run_by_powershell() -> None:
    node, said = run(in_powershell("Start-Service -Name kubelet"))
    ((*words, encoded),) = node.ran
    assert words[0] == "powershell"
    assert b64decode(encoded).decode("utf-16-le").endswith("; Start-Service -Name kubelet")
    assert said == []


def test_a_fix_that_fails_is_said() -> None:
    _, said = run(in_powershell("Start-Service -Name kubelet"), code=1)
    assert said == ["  service kubelet: no such service"]


@pytest.mark.parametrize(
    ("mends", "runs"),
    [("systemctl restart kubelet", True), ("delete the pod, so that it is created again", False)],
)
def test_on_linux_a_shell_runs_commands_and_nobody_sentences(mends: str, runs: bool) -> None:
    node, _ = run(mends)
    assert [words[0] for words in node.ran] == (["sh"] if runs else [])


def test_pods_that_are_made_again_are_asked_for_at_each_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their addresses are others."""
    bound = iter(["before", "after"])
    finding = differs(
        "tunnel-missing",
        "win",
        UnitSubject("x"),
        "there",
        "gone",
        "",
        in_powershell("Start-Service -Name x"),
    )

    @contextmanager
    def bind(_: object) -> Iterator[str]:
        yield next(bound)

    monkeypatch.setattr(module, "bind_intent", bind)
    monkeypatch.setattr(module, "BoundLab", lambda *_: None)
    monkeypatch.setattr(
        module,
        "_find_place_differences",
        lambda _view, intent, *_: (finding,) if intent == "before" else (),
    )
    opened = SimpleNamespace(
        name="lab",
        handle=None,
        intent=SimpleNamespace(places=lambda: {"win": (SimpleNamespace(os="windows"),)}),
        provider=SimpleNamespace(machine=lambda *_: Node(0)),
        require_own=lambda *_: None,
        require_running=lambda **_: None,
        in_use=lambda *_, **__: nullcontext(),
    )
    result = module.repair(opened, "win", None, print, only_look=False)  # type: ignore[arg-type]
    assert (result.differences, result.left) == ((finding,), ())


def test_an_effect_that_comes_later_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node may not answer meanwhile, and lack more; advice that was there is not waited for."""
    monkeypatch.setattr("lab.lifecycle.repair._LOOK_SECONDS", 0.0)
    route, rules, pod = (
        differs(kind, "win", UnitSubject(kind), "there", "gone", "", mends)
        for kind, mends in (
            ("route-missing", in_powershell("Start-ScheduledTask -TaskName hybridlab-flanneld")),
            ("service-rules-missing", in_powershell("Start-Service -Name kube-proxy")),
            ("pod-missing", "delete the pod"),
        )
    )
    answers = iter([(route,), BrokenError("looking", "no route"), (rules, pod), (pod,)])

    def look() -> tuple[Difference, ...]:
        answer = next(answers)
        if isinstance(answer, BrokenError):
            raise answer
        return answer

    assert _wait_for_effect([pod], look, Deadline(60)) == (pod,)
    coming = iter([(pod,), ()])
    assert _wait_for_effect([], lambda: next(coming), Deadline(60)) == ()
    assert _wait_for_effect([], lambda: (route,), Deadline(0)) == (route,)
    assert _wait_for_effect([route], lambda: (route,), Deadline(60)) == (route,)

    def fail() -> tuple[Difference, ...]:
        raise BrokenError("looking", "no route")

    with pytest.raises(BrokenError, match="no route"):
        _wait_for_effect([], fail, Deadline(0))
