"""What ``lab show`` prints: the whole Intent, or its sum if that is long."""

from __future__ import annotations

import json

import pytest

from lab.cli import show
from lab.cli.main import main
from lab.scenario.loader import shipped

MANY = """\
name: many
summary: more nodes than anybody reads JSON of
kubernetes:
  version: "1.36"
  pod_cidr: 10.244.0.0/16
  node_prefix: 24
  service_cidr: 10.96.0.0/12
  dns_address: 10.96.0.10
network: {cidr: 10.9.176.0/22}
topology: {kind: overlay}
pods_per_node: 1
nodes:
  - {name: master, os: linux, role: control-plane}
  - {name: worker, os: linux, count: 250}
"""


def shown(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["show", *words])
    assert ended.value.code == 0
    return capfd.readouterr()


def test_a_lab_of_many_nodes_is_summed_up(tmp_path, capfd):
    file = tmp_path / "many.yaml"
    file.write_text(MANY)
    out, err = shown(capfd, str(file))
    names, *rows = (line.split("  ") for line in out.splitlines())
    assert names[0] == "machines"
    assert [row[0] for row in rows] == ["master", "worker1 to worker250, 250", "router", "client"]
    assert err == f"'lab show {file} --json' prints all of it\n"


def test_one_node_of_many_is_shown_whole(tmp_path, capfd):
    file = tmp_path / "many.yaml"
    file.write_text(MANY)
    out, _ = shown(capfd, str(file), "worker7")
    assert json.loads(out)["name"] == "worker7"


@pytest.mark.parametrize("words", [("overlay",), ("overlay", "win1")])
def test_what_is_too_long_is_whole_with_json(words, capfd, monkeypatch):
    whole, _ = shown(capfd, *words)
    monkeypatch.setattr(show, "MOST_SHOWN", len(whole) // 2)
    summed, err = shown(capfd, *words)
    assert summed.startswith("machines")
    assert len(summed) < len(whole) // 2
    assert f"lab show {' '.join(words)} --json" in err
    assert shown(capfd, *words, "--json")[0] == whole


@pytest.mark.parametrize("name", shipped())
def test_shipped_scenarios_are_shown_whole(name, capfd):
    assert json.loads(shown(capfd, name)[0])["machines"]
