"""`tools/packages` and `tools/setup`, with Debian's programs played by small scripts.

They run as root of a user namespace in which /usr/sbin is a directory of the test's.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from lab.plan.planner import make_plan
from lab.scenario.loader import find, load, shipped
from lab.topology import registry

ROOT = Path(__file__).parents[2]
STUBS = {
    "apt-get": """
[ "$1" = install ] || exit 0
shift
sh /usr/sbin/policy-rc.d 2>/dev/null; allowed=$?
for word; do case $word in --*) ;; *) echo "$word $allowed" >>installed ;; esac; done
[ ! -e broken ]
""",
    "dpkg-query": "sed 's/ .*/ installed/' installed 2>/dev/null",
    "dpkg": 'echo /lib/systemd/system/$2.service; echo "/lib/systemd/system/$2@.service"',
    "systemctl": 'echo "$*" >>switched',
}
ALLOWED, DENIED = 2, 101
"""What Debian's question is answered with: no such file, or the word that forbids."""


class World:
    """A machine's /usr/sbin, and what was asked of the package manager."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.sbin = directory, directory / "sbin"
        self.sbin.mkdir()
        (directory / "stubs").mkdir()
        for name, text in STUBS.items():
            path = directory / "stubs" / name
            path.write_text(f"#!/bin/sh\n{text.strip()}\n", encoding="utf-8")
            path.chmod(0o755)

    def packages(self, *words: str) -> int:
        inside = f'mount --bind {self.sbin} /usr/sbin && exec {ROOT}/tools/packages "$@"'
        return subprocess.run(
            ["unshare", "--map-root-user", "--mount", "sh", "-c", inside, "sh", *words],
            cwd=self.directory,
            env={**os.environ, "PATH": f"{self.directory}/stubs:/usr/bin:/bin"},
            check=False,
            timeout=60,
        ).returncode

    def read(self, name: str) -> list[str]:
        path = self.directory / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_services_of_quiet_packages_neither_start_nor_are_enabled(world):
    assert world.packages("curl", "--quiet", "bird2", "haproxy") == 0
    assert world.read("installed") == [f"curl {ALLOWED}", f"bird2 {DENIED}", f"haproxy {DENIED}"]
    assert world.read("switched") == [
        "disable --quiet bird2.service",
        "disable --quiet haproxy.service",
    ]
    assert not list(world.sbin.iterdir()), "services may start again"


def test_a_service_that_was_there_before_is_left_alone(world):
    (world.directory / "installed").write_text("haproxy 0\n", encoding="utf-8")
    assert world.packages("--quiet", "bird2") == 0
    assert world.read("switched") == ["disable --quiet bird2.service"]


def test_a_policy_of_the_machines_own_stays(world):
    own = world.sbin / "policy-rc.d"
    own.write_text("exit 104\n", encoding="utf-8")
    assert world.packages("--quiet", "bird2") == 0
    assert world.read("installed") == ["bird2 104"]
    assert own.read_text(encoding="utf-8") == "exit 104\n"


def test_an_installation_that_fails_leaves_services_allowed(world):
    (world.directory / "broken").touch()
    assert world.packages("--quiet", "bird2") != 0
    assert not list(world.sbin.iterdir())


def test_what_a_killed_one_left_is_taken_away(world):
    mark = re.search(r'^mark="(.*)"$', (ROOT / "tools/packages").read_text(), re.MULTILINE)
    assert mark
    (world.sbin / "policy-rc.d").write_text(f"#!/bin/sh\n{mark[1]}\nexit 101\n", encoding="utf-8")
    assert world.packages("curl") == 0
    assert world.read("installed") == [f"curl {ALLOWED}"]


def test_set_up_knows_the_packages_of_every_topologys_daemons():
    said = {}
    for line in (ROOT / "tools/daemons").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            kind, _, packages = line.partition(": ")
            said[kind] = set(packages.split())
    wanted: dict[str, set[str]] = {}
    for name in shipped():
        intent = registry.intent(make_plan(load(find(name))))
        for machine in intent.machines:
            for daemon in machine.daemons:
                wanted.setdefault(intent.topology, set()).add(daemon.package)
    assert said == wanted
