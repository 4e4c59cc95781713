"""Labs of real namespaces for the tests, and the proof that each leaves nothing behind."""

from __future__ import annotations

import gc
import secrets
from pathlib import Path
from typing import Any

import pytest
from netns_intents import cluster
from netns_running import Running

from lab.providers.netns import preflight
from lab.providers.netns.provider import NetnsProvider
from lab.providers.provider import LabHandle
from lab.topology.intent import Intent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    tried = preflight.try_abilities(tunnels=True) if here else ()
    missing = [one for one in tried if one.level != "ok"]
    for item in here if missing else []:
        why = f"this machine has no {missing[0].check}, {missing[0].seen}; {missing[0].hint}"
        item.add_marker(pytest.mark.skip(reason=why))


def _traces(tokens: set[str]) -> dict[str, Any]:
    gc.collect()
    ours = {
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/environ")
        if _started_with(path) and any(token in _started_with(path) for token in tokens)
    }
    return {
        "processes": ours,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "children": {
            child
            for path in Path("/proc/self/task").glob("*/children")
            for child in path.read_text(encoding="utf-8").split()
        },
    }


def _started_with(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


@pytest.fixture(scope="module")
def tokens(mounts):
    """Every token that the module's tests use; afterwards, nothing with one of them may be left."""
    used: set[str] = set()
    mounted, before = mounts(), _traces(used)
    yield used
    try:
        after = _traces(used)
        # objects of an earlier module may be garbage-collected meanwhile
        assert after["descriptors"] <= before["descriptors"]
        assert {**after, "descriptors": 0} == {**before, "descriptors": 0}
        assert not mounts() - mounted
    finally:
        for token in used:
            NetnsProvider().destroy(LabHandle("left", Path("/tmp"), token))


@pytest.fixture(scope="module")
def new_lab(tokens, tmp_path_factory):
    def make(name: str = "lab") -> LabHandle:
        token = secrets.token_hex(8)
        tokens.add(token)
        return LabHandle(name, tmp_path_factory.mktemp(name), token)

    return make


@pytest.fixture(scope="module")
def bring_up(new_lab):
    made: list[Running] = []

    def up(intent: Intent, provider: NetnsProvider | None = None, name: str = "lab") -> Running:
        provider = provider or NetnsProvider()
        running = Running(new_lab(name), intent, provider)
        made.append(running)
        return running.up()

    yield up
    for running in made:
        running.provider.destroy(running.lab)


@pytest.fixture(scope="module")
def overlay(bring_up):
    return bring_up(cluster("overlay"))


@pytest.fixture(scope="module")
def host_gateway(bring_up):
    return bring_up(cluster("host-gateway"))
