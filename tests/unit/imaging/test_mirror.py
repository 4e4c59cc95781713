from __future__ import annotations

import pytest

from lab.imaging import recipes
from lab.imaging.bootstrap import mirror_sources, sources

TARGETS = """\
Debian|bookworm|bookworm|http://mirror.example/debian/|main|Packages
Debian|bookworm|bookworm|http://mirror.example/debian/|contrib|Packages
Debian|bookworm|bookworm|http://mirror.example/debian/|main|DEP-11
Debian|bookworm-updates|bookworm-updates|http://mirror.example/debian/|main|Packages
Debian|bookworm-security|bookworm-security|http://mirror.example/debian-security/|main|Packages
Debian|bookworm-backports|bookworm-backports|http://mirror.example/debian/|main|Packages
Docker|bookworm|bookworm|https://packages.example/docker/|main|Packages
node|nodistro|nodistro|https://packages.example/node/|main|Packages
"""
UNSEEN = """\
||bookworm|http://mirror.example/debian/|main|Packages
||bookworm-updates|http://mirror.example/debian/|main|Packages
||bookworm|https://packages.example/docker/|stable|Packages
"""
HOST = ("debian", "bookworm")


def lines(targets: str, suite: str = "bookworm", host: tuple[str, str] = HOST) -> list[str]:
    return [one.line() for one in mirror_sources(targets, "debian", host, suite)]


def test_release_of_the_host_comes_with_its_updates_and_nobody_elses_packages():
    assert lines(TARGETS) == [
        "deb http://mirror.example/debian bookworm main",
        "deb http://mirror.example/debian bookworm-updates main",
        "deb http://mirror.example/debian-security bookworm-security main",
    ]


def test_another_release_is_looked_for_beside_the_hosts_own():
    assert lines(TARGETS, "trixie") == [
        "deb http://mirror.example/debian trixie main",
        "deb http://mirror.example/debian trixie-updates main",
        "deb http://mirror.example/debian-security trixie-security main",
    ]


def test_alias_of_the_release_is_known_by_its_code_name():
    text = "Debian|bookworm|stable|http://mirror.example/debian/|main|Packages\n"
    assert lines(text) == ["deb http://mirror.example/debian bookworm main"]


def test_lists_that_apt_has_not_fetched_yet_are_known_by_their_release():
    assert lines(UNSEEN) == [
        "deb http://mirror.example/debian bookworm main",
        "deb http://mirror.example/debian bookworm-updates main",
    ]


@pytest.mark.parametrize(
    ("targets", "host"),
    [("", HOST), (TARGETS, ("ubuntu", "noble")), (TARGETS, ("", "")), ("a|b\n", HOST)],
    ids=["nothing", "another distribution", "unknown host", "no table"],
)
def test_host_without_such_a_mirror_gives_none(targets, host):
    assert lines(targets, host=host) == []


def test_mirror_of_the_inventory_is_taken_as_it_is():
    (source,) = sources(recipes.load("debian-12"), "http://near.example/debian")
    assert source.line() == "deb http://near.example/debian bookworm main"
