"""Labs of real namespaces for the tests, and the proof that each leaves nothing behind."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from intents import cluster

from lab._deadline import Deadline
from lab.providers.netns import abilities, namespaces, responding
from lab.providers.netns.entry import Entry
from lab.providers.netns.holding import entry
from lab.providers.netns.processes import holders
from lab.providers.netns.provider import NetnsProvider
from lab.providers.provider import LabHandle
from lab.topology.intent import Intent

PROGRAMS = Path(__file__).with_name("programs")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    missing = [one for one in abilities.abilities(tunnels=True) if not one.there] if here else []
    for item in here if missing else []:
        why = f"this machine has no {missing[0].name}: {missing[0].detail}; {missing[0].cure}"
        item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session", autouse=True)
def _small_responder() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(responding, "PROGRAM", PROGRAMS / "responder.py")
        yield


def _traces(tokens: set[str]) -> dict[str, object]:
    runs = Path("/run/netns")
    ours = {
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if _command_line(path) and any(token in _command_line(path) for token in tokens)
    }
    return {
        "processes": ours,
        "mounts": Path("/proc/self/mounts").read_text(encoding="utf-8"),
        "namespaces": sorted(os.listdir(runs)) if runs.is_dir() else [],
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def _command_line(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.fixture(scope="module")
def tokens() -> Iterator[set[str]]:
    """Every token a test of the module has used; at its end nothing carries one of them."""
    used: set[str] = set()
    before = _traces(used)
    yield used
    try:
        assert _traces(used) == before
        with pytest.raises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
    finally:
        for token in used:
            NetnsProvider().destroy(LabHandle("left", Path("/tmp"), token))


@pytest.fixture(scope="module")
def new_lab(tokens: set[str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., LabHandle]:
    def make(name: str = "lab") -> LabHandle:
        token = f"test-{os.getpid()}-{secrets.token_hex(6)}"
        tokens.add(token)
        return LabHandle(name, tmp_path_factory.mktemp(name), token)

    return make


class Running:
    """A lab that is up, and questions to it."""

    def __init__(self, lab: LabHandle, intent: Intent, provider: NetnsProvider) -> None:
        self.lab, self.intent, self.provider = lab, intent, provider

    @property
    def entry(self) -> Entry:
        return entry(self.lab)

    def ask(self, source: str, address: str, port: int, kind: str = "tcp") -> str:
        """``"NAME CLIENT"`` as the responder says it, or ``"timeout"``, ``"refused"``, ..."""

        def inside(_: object) -> str:
            with namespaces.within(source):
                return _asked(address, port, kind)

        return self.entry.call(f"asking from {source}", inside, Deadline(10))

    def shell(self, machine: str, command: str) -> str:
        done = self.provider.machine(self.lab, self.intent, machine).run(
            ["sh", "-c", command], Deadline(10)
        )
        assert done.code == 0, done
        return done.stdout


def _asked(address: str, port: int, kind: str) -> str:
    family = socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, family) as client:
        client.settimeout(0.4)
        try:
            client.connect((address, port))
            if kind == "udp":
                with suppress(PermissionError):  # lost, or rejected, by the sender's own rules
                    client.send(b"?")
            return client.recv(200).decode().strip()
        except TimeoutError:
            return "timeout"
        except ConnectionRefusedError:
            return "refused"


@pytest.fixture(scope="module")
def bring_up(new_lab: Callable[..., LabHandle]) -> Iterator[Callable[..., Running]]:
    made: list[Running] = []

    def up(intent: Intent, provider: NetnsProvider | None = None, name: str = "lab") -> Running:
        provider = provider or NetnsProvider()
        running = Running(new_lab(name), intent, provider)
        made.append(running)
        for step in provider.steps(running.lab, intent):
            step.run()
        return running

    yield up
    for running in made:
        running.provider.destroy(running.lab)


@pytest.fixture(scope="module")
def overlay(bring_up: Callable[..., Running]) -> Running:
    return bring_up(cluster("overlay"))


@pytest.fixture(scope="module")
def host_gateway(bring_up: Callable[..., Running]) -> Running:
    return bring_up(cluster("host-gateway"))


@pytest.fixture
def no_holder_of_ours(tokens: set[str]) -> Callable[[], bool]:
    return lambda: not [one for one in holders() if one.token in tokens]
