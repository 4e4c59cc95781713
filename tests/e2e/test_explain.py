"""``lab explain`` as a user types it, and the line that it adds to ``lab test``."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from xml.etree import ElementTree as ET

import pytest

pytestmark = pytest.mark.slow


def test_a_broken_cell_is_explained_and_the_fix_repairs_it(lab):
    lab.run("up", "overlay")
    well = lab.run("explain", "overlay", "master-p1", "worker1-p1")
    assert "nothing is wrong on its path (50 hops, there and back)" in well.stdout
    lab.run("fault", "overlay", "wrong-vni", "--node", "worker1")
    told = lab.run("explain", "overlay", "master-p1", "worker1-p1", code=1).stdout
    assert "on worker1, tunnel flannel.4096: VNI 4097; it should be: VNI 4096" in told
    assert "see:    lab exec overlay worker1 -- ip -details link show dev flannel.4096" in told
    words = ("explain", "overlay", "master-p1", "worker1-p1", "--protocol", "udp", "--json")
    document = json.loads(lab.run(*words, code=1).stdout)
    assert document["cell"].endswith("udp-small")
    finding = document["finding"]
    assert (finding["fault"], finding["node"]) == ("wrong-vni", "worker1")
    assert document["path"][finding["hop"]]["object"] == "tunnel flannel.4096"
    beside = lab.run("explain", "overlay", "master-p1", "worker2-p1")
    assert "nothing is wrong" in beside.stdout

    run = lab.run("test", "overlay", "-m", "pod-pod", code=1).stdout
    assert run.count("  * on worker1, tunnel flannel.4096: VNI 4097") == 1
    (directory,) = (path for path in (lab.state / "labs/overlay/runs").iterdir())
    assert "(wrong-vni)" in (directory / "junit.xml").read_text(encoding="utf-8")
    assert "(wrong-vni): " in (directory / "report.html").read_text(encoding="utf-8")
    result = json.loads((directory / "result.json").read_text(encoding="utf-8"))
    assert {finding["fault"] for finding in result["findings"]} == {"wrong-vni"}

    lab.run("heal", "overlay")
    lab.run("explain", "overlay", "master-p1", "worker1-p1")


def test_repair_makes_one_object_or_all_that_differs_as_the_lab_made_it(lab):
    lab.run("up", "overlay")
    lab.run("fault", "overlay", "wrong-vni", "--node", "worker1")
    lab.run("exec", "overlay", "worker1", "--", "ip", "route", "add", "blackhole", "192.0.2.0/24")
    table = "table ip mine { chain c { drop; }; }"
    lab.run("exec", "overlay", "worker1-p1", "--", "nft", table)
    told = lab.run("explain", "overlay", "master-p1", "worker1-p1", code=1).stdout
    (fix,) = (line.split(maxsplit=1)[1] for line in told.splitlines() if " fix: " in line)
    words = shlex.split(fix)
    assert words == ["lab", "repair", "overlay", "worker1", "tunnel flannel.4096"]
    whole = lab.run("explain", "overlay", "master-p1", "worker1-p1", "--commands", code=1).stdout
    (command,) = (line.split(maxsplit=1)[1] for line in whole.splitlines() if " fix: " in line)
    assert lab.run(*words[1:], "--commands", code=1).stdout == f"{command}\n"
    wrong = lab.run("repair", "overlay", "worker1", "tunnel flannel.409", code=2)
    assert "did you mean 'tunnel flannel.4096'?" in wrong.stderr
    assert "repaired: on worker1, tunnel flannel.4096: VNI 4097" in lab.run(*words[1:]).stdout
    lab.run("explain", "overlay", "master-p1", "worker1-p1")
    (repaired,) = lab.run("repair", "overlay", "worker1").stdout.splitlines()
    assert repaired.startswith("repaired: on worker1, route to 192.0.2.0/24: blackhole")
    document = json.loads(lab.run("repair", "overlay", "worker1-p1", "--json").stdout)
    assert [one["object"] for one in document["found"]] == ["pod worker1-p1, table ip mine"]
    assert document["left"] == []
    for place in ("worker1", "worker1-p1"):
        same = f"'{place}' of lab 'overlay' is as the lab made it\n"
        assert lab.run("repair", "overlay", place).stdout == same
    lab.run("heal", "overlay")
    lab.run("status", "overlay", "--deep")


def test_of_two_faults_both_are_named_once_in_every_report(lab):
    lab.run("up", "overlay")
    lab.run("fault", "overlay", "wrong-vni", "--node", "worker1")
    lab.run("fault", "overlay", "pod-link-down", "--node", "worker2", "--peer", "worker2-p1")
    told = lab.run("test", "overlay", "-m", "pod-pod and tcp and small", code=1).stdout
    (heading,) = (line for line in told.splitlines() if line.startswith("Not as expected"))
    assert heading.endswith("; 2 causes found")
    (directory,) = (lab.state / "labs/overlay/runs").iterdir()
    page = (directory / "report.html").read_text(encoding="utf-8")
    suite = ET.parse(directory / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    noted = Counter(
        str(one.get("value"))
        for one in suite.iter("property")
        if str(one.get("name")).startswith("cause_")
    )
    for fault in ("(wrong-vni): ", "(pod-link-down): "):
        assert told.count(fault) == page.count(fault) == 1
        assert sum(fault in line for line in noted) == 1
    cells = [int(line.rpartition(": ")[2].split()[0]) for line in noted]
    assert sum(cells) == int(suite.attrib["failures"])
    stopped = lab.run("test", "overlay", "-x", "-m", "pod-pod", code=1).stdout
    assert "Not as expected: 1 cell; 1 cause found" in stopped


def test_a_card_that_is_down_is_named_also_where_a_rule_would_have_dropped_the_packet(lab):
    lab.run("up", "services")
    words = ("explain", "services", "master", "at-home", "--json")
    assert json.loads(lab.run(*words).stdout)["finding"] is None
    lab.run("fault", "services", "node-link-down", "--node", "master")
    document = json.loads(lab.run(*words, code=1).stdout)
    assert (document["finding"]["fault"], document["finding"]["node"]) == (
        "node-link-down",
        "master",
    )
    assert document["elsewhere"] == []


@pytest.mark.parametrize(
    "script",
    [
        None,
        "echo 'sh: 0: Cannot fork' >&2; exit 2",
        r"printf '\n@@@ address\n[]\n\n@@@= 0\n'; exit 2",
    ],
    ids=["no shell", "a shell without a process", "half of the answers"],
)
def test_a_state_that_cannot_be_read_is_no_difference(lab, tmp_path, script):
    lab.run("up", "overlay")
    if script:
        (tmp_path / "sh").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tmp_path / "sh").chmod(0o755)
    deep = lab.call(lab.command("status", "overlay", "--deep"), PATH=str(tmp_path))
    assert deep.returncode == 3, deep
    assert "unread     on worker1, the machine itself: its state cannot be read" in deep.stdout
    assert "difference" not in deep.stdout
    assert "as intended" not in deep.stdout
    words = lab.command("explain", "overlay", "master-p1", "worker1-p1", "--json")
    told = lab.call(words, PATH=str(tmp_path))
    document = json.loads(told.stdout)
    assert (told.returncode, document["finding"], document["well"]) == (3, None, False)
    assert {"master", "worker1"} <= {
        place for silence in document["silences"] for place in silence["places"]
    }


DROP = (
    "table ip mine { chain c { type filter hook input priority 0; ip saddr 10.9.176.11 drop; }; }"
)


def test_any_two_endpoints_are_explained_in_a_healthy_lab_and_in_a_broken_one(lab):
    lab.run("up", "overlay")
    for source, target in (("worker1", "worker2"), ("win1", "client"), ("client", "worker1")):
        answer = lab.run("explain", "overlay", source, target).stdout
        assert f"pair: {source} to {target}, TCP small: works (6 of 6 times)" in answer
        assert "nothing is wrong on its path" in answer
    answer = lab.run("explain", "overlay", "client", "win1-p1").stdout
    assert "pair: client to win1-p1, TCP small: gets no answer, as expected" in answer
    assert "not expected to be reachable, because router has no route to 10.244.3.4" in answer
    captured = lab.run("capture", "overlay", "client", "win1-p1").stdout
    assert "not expected to work: router has no route to 10.244.3.4" in captured
    assert "client eth0" in lab.run("capture", "overlay", "worker1", "client").stdout

    lab.run("exec", "overlay", "worker2", "--", "nft", DROP)
    answer = lab.run("explain", "overlay", "worker1", "worker2", code=1).stdout
    assert "on worker2, table ip mine, chain c: ip saddr 10.9.176.11 drop" in answer
    lab.run("exec", "overlay", "client", "--", "ip", "route", "delete", "default")
    words = ("explain", "overlay", "client", "worker1", "--json")
    finding = json.loads(lab.run(*words, code=1).stdout)["finding"]
    assert (finding["node"], finding["object"]) == ("client", "route to default")


def test_an_endpoint_that_answers_although_no_route_leads_there_is_a_failure_with_its_cause(lab):
    lab.run("up", "overlay")
    route = ("ip", "route", "add", "10.244.1.0/24", "via", "10.9.176.11")
    lab.run("exec", "overlay", "router", "--", *route)
    answer = lab.run("explain", "overlay", "client", "worker1-p1", code=1).stdout
    assert "expected to get no answer (UNREACHABLE), but it works" in answer
    assert "on router, route to 10.244.1.0/24: 10.244.1.0/24 via 10.9.176.11 dev eth0" in answer
    captured = lab.run("capture", "overlay", "client", "worker1-p1", code=1).stdout
    assert "where the Intent ends; it went on, and was answered" in captured
