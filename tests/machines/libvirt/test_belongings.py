"""What of several controllers stands on one hypervisor: each sees and ends its own alone."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from lab.inventory.inventory import Hypervisor
from lab.lifecycle.gc import GcRequest, GcResult, gc
from lab.machines.libvirt import connection, domains, networks, owned, storage
from lab.machines.libvirt.connection import controller_id
from lab.machines.libvirt.host import Host
from lab.machines.libvirt.ownership import Owner
from lab.providers.netns.provider import NetnsProvider
from lab.providers.provider import LabHandle, Mark
from lab.state.store import Store

NOW = time.time()
MINE = Owner("far", "t0", Path("/gone/for/ever/labs/far"), controller_id(), "me", NOW - 9e5)
ANNS = replace(MINE, token="t1", controller="0123456789abcdef", owner="ann@desk")
EXPIRED = replace(ANNS, token="t2", expires=NOW - 60)


@dataclass(frozen=True)
class Thing:
    """A domain, a network or a pool."""

    kind: str
    owner: Owner

    def name(self) -> str:
        return f"{self.owner.lab}-{self.owner.token}-{self.owner.owner}"


class Shelf(Host):
    """A hypervisor with objects in memory."""

    def __init__(self, *owners: Owner) -> None:
        super().__init__(Hypervisor(name="hv", uri="qemu:///system", line=3))
        kinds = ("domain", "network", "pool")
        self.things = [Thing(kind, owner) for owner in owners for kind in kinds]

    @property
    def connected(self) -> Any:
        return self

    @contextmanager
    def explain_errors(self, doing: str, hint: str = "") -> Iterator[None]:
        del doing, hint
        yield

    def lab_pool(self, token: str) -> Any:
        things = (
            thing for thing in self.things if (thing.kind, thing.owner.token) == ("pool", token)
        )
        return next(things, None)

    def listAllDomains(self) -> list[Thing]:  # noqa: N802  libvirt's own name
        return [thing for thing in self.things if thing.kind == "domain"]

    def listAllNetworks(self) -> list[Thing]:  # noqa: N802  the same
        return [thing for thing in self.things if thing.kind == "network"]

    def left(self) -> set[tuple[str, str]]:
        """Token and owner of what is still there."""
        return {(thing.owner.token, thing.owner.owner) for thing in self.things}


@pytest.fixture(autouse=True)
def _memory(monkeypatch):
    monkeypatch.setattr(
        connection, "owned", lambda things: ((thing, thing.owner) for thing in things)
    )


class Hypervisors(NetnsProvider):
    """Of the libvirt provider, what a lab's end takes."""

    name = "libvirt"

    def __init__(self, shelf: Shelf) -> None:
        super().__init__()
        self._hosts = {"hv": shelf}

    def marks(self, *, all_users: bool = False) -> tuple[Mark, ...]:
        return owned.marks(self._hosts.values(), all_users=all_users)

    def destroy(self, lab: LabHandle, *, owner: str = "") -> tuple[str, ...]:
        return owned.destroy(lab, None, self._hosts, owner)


@pytest.fixture
def remove(monkeypatch):
    """Lets removed objects go from that shelf."""

    def use(shelf: Shelf) -> Shelf:
        for module, name in ((domains, "remove"), (networks, "remove"), (storage, "remove_pool")):
            monkeypatch.setattr(module, name, shelf.things.remove)
        return shelf

    return use


def collect(shelf: Shelf, state: Path, *, all_users: bool) -> GcResult:
    with Store(state) as store:
        providers = {"libvirt": Hypervisors(shelf)}
        return gc(GcRequest(0.0, True, all_users), providers, store, lambda _: None)


# SECURITY.md: `lab` ends only the caller's objects.
def test_only_the_callers_own_objects_are_seen():
    shelf = Shelf(MINE, ANNS, EXPIRED)
    assert {mark.token for mark in owned.marks([shelf])} == {"t0"}
    marks = {mark.token: mark for mark in owned.marks([shelf], all_users=True)}
    assert marks.keys() == {"t0", "t2"}
    assert (marks["t0"].owner, marks["t0"].expired) == ("", False)
    assert marks["t2"].owner == "ann@desk (controller 0123456789abcdef)"
    assert marks["t2"].expired


# SECURITY.md: `lab` ends only the caller's objects.
def test_another_controllers_expired_lab_goes_with_all_users_alone(remove, tmp_path):
    shelf = remove(Shelf(ANNS, EXPIRED))
    assert collect(shelf, tmp_path, all_users=False).found == ()
    assert len(collect(shelf, tmp_path, all_users=True).removed) == 3
    assert shelf.left() == {("t1", "ann@desk")}


# SECURITY.md: `lab` ends only the caller's objects.
@pytest.mark.parametrize("all_users", [False, True])
def test_a_forged_mark_with_anothers_token_ends_nothing_of_theirs(remove, tmp_path, *, all_users):
    """A domain that says it is mine, with the token of a lab of Ann's."""
    shelf = remove(Shelf(ANNS))
    directory = tmp_path / "gone" / "labs" / "far"
    forged = replace(MINE, token=ANNS.token, owner="mallory", directory=directory)
    shelf.things.append(Thing("domain", forged))
    assert len(collect(shelf, tmp_path / "state", all_users=all_users).removed) == 1
    assert shelf.left() == {("t1", "ann@desk")}
    assert {thing.kind for thing in shelf.things} == {"domain", "network", "pool"}


def test_an_expired_forgery_in_anothers_name_ends_itself_alone(remove, tmp_path):
    shelf = remove(Shelf(ANNS))
    forged = replace(EXPIRED, token=ANNS.token, owner="mallory", controller="fedcba9876543210")
    shelf.things.append(Thing("domain", forged))
    assert len(collect(shelf, tmp_path, all_users=True).removed) == 1
    assert shelf.left() == {("t1", "ann@desk")}


def test_a_lab_goes_also_after_this_machine_got_another_name(remove, tmp_path):
    directory = tmp_path / "labs" / "far"
    shelf = remove(Shelf(replace(ANNS, directory=directory)))
    lab = LabHandle("far", directory, ANNS.token)
    hosts = cast("dict[str, Host]", {"hv": shelf})
    assert len(owned.destroy(lab, None, hosts)) == 3
    assert shelf.things == []


def test_what_a_mark_names_is_neither_removed_nor_opened(remove, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "kept").touch()
    up = "../" * 20 + str(victim.relative_to("/"))
    for name, directory in ((up, victim), ("far", tmp_path / "none" / ".." / "victim")):
        shelf = remove(Shelf(replace(MINE, lab=name, directory=directory)))
        assert collect(shelf, tmp_path / "state", all_users=True).found == ()
    assert (victim / "kept").exists()
