"""All that a Windows node is given, per topology, release and minor: as it was, and meant so."""

from __future__ import annotations

import json

import cluster_nodes
import pytest

RENEW = "python tests/windows/cluster_nodes.py"


@pytest.mark.parametrize("case", cluster_nodes.CASES, ids="-".join)
def test_node_is_given_what_it_was_given(case):
    golden = cluster_nodes.path(*case).read_text()
    assert cluster_nodes.golden(*case) == golden, f"meant so? {RENEW}"


def test_no_golden_is_of_nobody():
    there = {path for path in cluster_nodes.GOLDEN.rglob("*") if path.is_file()}
    assert there == {cluster_nodes.path(*case) for case in cluster_nodes.CASES}


@pytest.mark.parametrize("case", cluster_nodes.CASES, ids="-".join)
def test_all_of_it_is_ascii(case):
    """Windows PowerShell reads what has no mark in its code page."""
    made = cluster_nodes.everything(
        cluster_nodes.decided(case[0], case[2]), cluster_nodes.seen(case[1])
    )
    assert json.dumps(made, ensure_ascii=False).isascii()


@pytest.mark.parametrize("case", cluster_nodes.CASES, ids="-".join)
def test_no_command_line_holds_a_quote_or_the_token(case):
    """sc.exe gets it as one argument, and PowerShell hands quotes on unescaped."""
    made = cluster_nodes.everything(
        cluster_nodes.decided(case[0], case[2]), cluster_nodes.seen(case[1])
    )
    commands = [
        one["command"] for step in made["steps"] for one in step.values() if "command" in one
    ]
    assert len(commands) == 2
    for command in commands:
        assert '"' not in command
        assert cluster_nodes.JOIN.token not in command
