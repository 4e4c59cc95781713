"""Processes that only look like holders, and holders of other users: neither entered nor ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from netns_intents import cluster

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.lifecycle.gc import GcRequest, GcResult, gc
from lab.providers.netns import holders
from lab.providers.netns.holders import (
    LAB_HOLDER,
    NODE_HOLDER,
    TOKEN_VARIABLE,
    list_holders,
    start_time,
)
from lab.providers.netns.provider import NetnsProvider
from lab.providers.provider import LabHandle, Mark
from lab.state.store import Store

PACKAGE = Path(holders.__file__).parents[2]
NOBODY = 65534
SLEEP = "import time; time.sleep(600)"
Start = Callable[..., int]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start others' processes")


@pytest.fixture
def common():
    """A directory that every user can read, with the holder's program in it."""
    directory = Path(tempfile.mkdtemp(prefix="strangers-", dir="/tmp"))
    names = ("", "providers/", "providers/netns/")
    modules = ["providers/netns/holder_program", "providers/netns/isolation"]
    for name in (*(f"{name}__init__" for name in names), *modules):
        target = directory / "lab" / f"{name}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(PACKAGE / f"{name}.py", target)
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def start():
    """Starts a process that goes on, as another user if asked; its number."""
    begun: list[subprocess.Popen[bytes]] = []

    def run(
        command: Sequence[str],
        user: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        process = subprocess.Popen(
            command,
            cwd="/",
            env={**os.environ, **(environment or {})},
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            user=user,
            group=user,
        )
        begun.append(process)
        last = command[-1].encode()
        Deadline(10).wait(
            f"process {process.pid} to run its program",
            lambda: Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")[-2:-1] == [last],
        )
        return process.pid

    yield run
    for process in begun:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def lab(new_lab):
    lab = new_lab("held")
    yield lab
    NetnsProvider().destroy(lab)
    NetnsProvider().destroy(lab, owner="nobody")


class OneLab(NetnsProvider):
    """Sees the marks of one lab alone: others may have theirs on this machine."""

    def __init__(self, lab: LabHandle) -> None:
        super().__init__()
        self._token = lab.token

    def marks(self, *, all_users: bool = False) -> tuple[Mark, ...]:
        marks = super().marks(all_users=all_users)
        return tuple(mark for mark in marks if mark.token == self._token)


def collect(
    state: Path, lab: LabHandle, *, all_users: bool = False, older_than: float | None = None
) -> GcResult:
    """As ``lab gc --yes`` does, but for one lab alone."""
    with Store(state) as store:
        request = GcRequest(older_than, yes=True, all_users=all_users)
        return gc(request, {"netns": OneLab(lab)}, store, lambda _: None)


def holder_of_nobody(python: str, common: Path, lab: LabHandle, name: str, directory: str) -> None:
    """Nobody's own holder, which says that its lab has that name and directory."""
    program = common / "lab" / "providers" / "netns" / "holder_program.py"
    done = subprocess.run(
        [python, "-I", "-S", str(program), LAB_HOLDER.marker, name, directory],
        cwd="/",
        env={**os.environ, TOKEN_VARIABLE: lab.token},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert '"ready": true' in done.stdout


def only_of_nobody(lab: LabHandle) -> int:
    (holder,) = [holder for holder in list_holders(all_users=True) if holder.token == lab.token]
    assert holder.user == NOBODY
    return holder.pid


@pytest.fixture
def python():
    """An interpreter that nobody may run."""
    for path in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        with suppress(OSError):
            if not subprocess.run([path, "-c", ""], user=NOBODY, check=False).returncode:
                return path
    pytest.skip("no Python on this machine that every user may run")


# SECURITY.md: A mark is a claim.
@needs_root
@pytest.mark.parametrize("all_users", [False, True])
def test_the_words_of_another_users_process_remove_nothing(  # noqa: PLR0913  all that it takes
    python, common, start, lab, tmp_path, *, all_users
):
    victim = common / "x" / "victim"
    victim.mkdir(parents=True)
    (victim / "kept").touch()
    state = tmp_path / "state"
    name = f"{'../' * 20}{victim.relative_to('/')}"
    words = ("hybridlab-holder", name, lab.token, f"{common}/x/none/../victim")
    pid = start([python, "-c", SLEEP, *words], NOBODY)
    collect(state, lab, all_users=all_users)
    assert (victim / "kept").exists()
    assert start_time(pid) is not None


# SECURITY.md: Files are found by the lab's name.
@needs_root
@pytest.mark.parametrize("all_users", [False, True])
def test_a_true_holder_of_another_user_names_no_directory_that_is_removed(
    python, common, lab, tmp_path, *, all_users
):
    victim = common / "labs" / "victim"
    victim.mkdir(parents=True)
    (victim / "kept").touch()
    up = f"{'../' * 20}{victim.relative_to('/')}"
    holder_of_nobody(python, common, lab, up, f"{common}/labs/none/../victim")
    pid = only_of_nobody(lab)
    collect(tmp_path / "state", lab, all_users=all_users, older_than=0.0)
    assert (victim / "kept").exists()
    assert start_time(pid) is not None, "what cannot be a lab is not ended either"


# SECURITY.md: A mark is a claim.
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            ("{python}", "-c", SLEEP, "{marker}", "held", "{token}", "{directory}"), id="words"
        ),
        pytest.param(("{python}", "-c", SLEEP, "{marker}", "held", "{directory}"), id="new-words"),
        pytest.param(
            ("{python}", "-I", "-S", "{program}", "{marker}", "held", "{directory}"), id="command"
        ),
        pytest.param(
            (
                *("unshare", "--user", "--map-current-user", "--mount", "--net", "--pid", "--fork"),
                *("{bash}", "-c", 'exec -a python sleep "$0"', "600", "{marker}", "held"),
                "{directory}",
            ),
            id="namespaces",
        ),
    ],
)
def test_the_callers_own_process_with_a_holders_words_is_no_holder(start, lab, tmp_path, command):
    program = tmp_path / "holder_program.py"
    program.write_text(SLEEP, encoding="utf-8")
    state = tmp_path / "state"
    words = [
        word.format(
            python=sys.executable,
            bash=shutil.which("bash"),
            marker=LAB_HOLDER.marker,
            token=lab.token,
            program=program,
            directory=state / "labs" / "held",
        )
        for word in command
    ]
    pid = start(words, environment={TOKEN_VARIABLE: lab.token})
    assert OneLab(lab).marks() == ()
    assert collect(state, lab).removed == ()
    assert holders.find_holder(lab) is None
    assert start_time(pid) is not None


def test_a_holder_of_an_earlier_version_is_found_and_ended(common, lab):
    """It has its token among its words, none in its environment, and the program's earlier name."""
    now = common / "lab" / "providers" / "netns" / "holder_program.py"
    text = now.read_text(encoding="utf-8")
    changed = text.replace("marker, _, directory =", "marker, _, _, directory =")
    assert changed != text
    program = now.with_name("holder.py")
    program.write_text(changed.replace(now.name, program.name), encoding="utf-8")
    words = (LAB_HOLDER.marker, lab.name, lab.token, str(lab.directory))
    command = (sys.executable, "-I", "-S", str(program), *words)
    subprocess.run(command, cwd="/", stdout=subprocess.DEVNULL, check=True, timeout=60)
    Deadline(10).wait("the holder to be found", lambda: OneLab(lab).marks())
    (mark,) = OneLab(lab).marks()
    assert (mark.lab, mark.directory) == (lab.name, lab.directory)
    assert len(NetnsProvider().destroy(lab)) == 1
    assert OneLab(lab).marks() == ()


# SECURITY.md: Root ends other users' labs only on request.
@needs_root
def test_another_users_holder_is_neither_entered_nor_ended_except_by_root(python, common, lab):
    provider, intent = NetnsProvider(), cluster(linux=1, windows=0, pods=1)
    holder_of_nobody(python, common, lab, lab.name, str(lab.directory))
    pid = only_of_nobody(lab)
    assert OneLab(lab).marks() == ()
    assert provider.destroy(lab) == ()
    with pytest.raises(BrokenError, match="its holder is not running"):
        holders.enter_holder(lab)
    assert provider.liveness(lab, intent).state == "absent"
    provider.steps(lab, intent)[0].run()
    assert holders.enter_holder(lab).pid != pid
    assert len(provider.destroy(lab)) == 1
    assert start_time(pid) is not None
    (mark,) = OneLab(lab).marks(all_users=True)
    assert (mark.owner, mark.lab) == ("nobody", lab.name)
    assert len(provider.destroy(lab, owner="nobody")) == 1
    assert start_time(pid) is None


# SECURITY.md: Root ends other users' labs only on request.
@needs_root
@pytest.mark.parametrize("older_than", [None, 0.0])
def test_with_all_users_root_ends_another_users_lab_and_touches_no_file(
    python, common, lab, tmp_path, older_than
):
    """One whose state directory is no more, or one that is older than root says."""
    state = common / "theirs"
    files = state / "labs" / "held"
    if older_than is not None:
        files.mkdir(parents=True)
        (files / "kept").touch()
    holder_of_nobody(python, common, lab, "held", str(files))
    pid = only_of_nobody(lab)
    own = tmp_path / "state" / "labs" / "held"
    own.mkdir(parents=True)
    (own / "kept").touch()
    assert collect(tmp_path / "state", lab, older_than=older_than).removed == ()
    assert start_time(pid) is not None
    result = collect(tmp_path / "state", lab, all_users=True, older_than=older_than)
    assert [item.owner for item in result.found] == ["nobody"]
    assert start_time(pid) is None
    assert (own / "kept").exists()
    assert (files / "kept").exists() == (older_than is not None)


# SECURITY.md: A lab's token is a name, not a key.
def test_a_labs_token_is_not_in_its_command_line(lab):
    pid = holders.start_holder(lab, sys.executable).pid
    assert lab.token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert lab.token.encode() in Path(f"/proc/{pid}/environ").read_bytes()


# SECURITY.md: A lab's token is a name, not a key.
@needs_root
def test_another_user_cannot_read_a_labs_token(lab):
    pid = holders.start_holder(lab, sys.executable).pid
    done = subprocess.run(
        ["cat", f"/proc/{pid}/environ", f"/proc/{pid}/cmdline"],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        check=False,
    )
    assert LAB_HOLDER.marker.encode() in done.stdout
    assert lab.token.encode() not in done.stdout
    assert b"environ: Permission denied" in done.stderr


# SECURITY.md: A lab is its user's.
@needs_root
@pytest.mark.parametrize(
    "command",
    [
        ("nsenter", "--target", "{pid}", "--net", "true"),
        ("ls", "/proc/{pid}/root/"),
        ("ls", "/proc/{pid}/fd"),
        ("kill", "-9", "{pid}"),
    ],
    ids=["enter", "files", "descriptors", "end"],
)
def test_another_user_can_neither_look_into_a_lab_nor_enter_nor_end_it(lab, command):
    pid = holders.start_holder(lab, sys.executable).pid
    words = [word.format(pid=pid) for word in command]
    done = subprocess.run(
        words,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "permitted" in done.stderr or "denied" in done.stderr
    assert holders.find_holder(lab) is not None


def test_each_kind_of_holder_is_found_as_itself_alone(lab, tmp_path):
    place = Path("/run") / f"strangers-{os.getpid()}" if os.geteuid() == 0 else tmp_path
    place.mkdir(exist_ok=True)
    node = LabHandle("node", place, lab.token)
    try:
        first = holders.start_holder(lab, sys.executable)
        second = holders.start_holder(node, sys.executable, NODE_HOLDER)
        for kind, entry in ((LAB_HOLDER, first), (NODE_HOLDER, second)):
            found = [holder for holder in list_holders(kind) if holder.token == lab.token]
            assert [holder.pid for holder in found] == [entry.pid]
    finally:
        holders.end_all_holders(
            lambda: [
                holder
                for holder in list_holders(NODE_HOLDER, starting=True)
                if holder.token == lab.token
            ]
        )
        place.rmdir()
