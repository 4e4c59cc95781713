"""The evidence archive: whole, bounded, without secrets, and no trouble to anybody."""

import base64
import itertools
import json
import os
import random
import stat
import tarfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import small_lab
from hypothesis import given
from hypothesis import strategies as st

from lab._deadline import Deadline
from lab._errors import BrokenError, StateError, UsageError
from lab.lifecycle import evidence
from lab.lifecycle.evidence import (
    GONE,
    KEPT,
    KNOWN,
    SHORTEST,
    gather,
    keep,
    member_name,
    scrub,
    secret_values,
    shorten,
    subject_of,
    write_archive,
)
from lab.lifecycle.gc import Kept, prune
from lab.providers.fake.provider import FakeProvider, Faults
from lab.providers.provider import Evidence, LabHandle
from lab.state.rows import RunRow
from lab.topology.intent import Intent

OWN = ["trouble.txt", "versions.json", "scenario.yaml", "plan.json", "intent.json", "journal.json"]


@dataclass
class Witness(FakeProvider):
    """Tells what it is told to tell."""

    pieces: Iterable[Evidence | Exception | threading.Event] = ()

    def evidence(self, lab: LabHandle, intent: Intent) -> Iterator[Evidence]:  # noqa: ARG002
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, threading.Event):
                piece.wait()
                continue
            yield piece


@pytest.fixture
def told_of(desk, tmp_path):
    """The members of an archive for which the provider delivers these pieces."""

    def gathered(pieces: Iterable[Evidence | Exception | threading.Event]) -> dict[str, bytes]:
        desk.provider = Witness(now=lambda: desk.now, pieces=pieces)
        desk.providers = {"fake": desk.provider}
        desk.up()
        return members(gather(desk.opened(), tmp_path))

    return gathered


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    Deadline(5).wait(
        "waiting for threads to go",
        lambda: [thread.name for thread in threading.enumerate()],
        until=lambda names: "evidence" not in names,
    )


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as packed:
        found = {}
        for member in packed.getmembers():
            content = packed.extractfile(member)
            assert content is not None
            found[member.name.removeprefix("overlay-evidence/")] = content.read()
        return found


def test_an_archive_takes_the_place_of_no_device(desk, tmp_path):
    desk.up()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="it is not a regular file"):
        gather(desk.opened(), tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_machines_files_that_cannot_be_walked_or_read_keep_no_archive_away(desk, tmp_path):
    desk.up()
    directory = desk.opened().handle.directory / "machines"
    directory.mkdir()
    os.mkfifo(directory / "pipe")
    inner = os.open(directory, os.O_RDONLY)
    for _ in range(20):  # deeper than a path can name
        os.mkdir("d" * 250, dir_fd=inner)
        outer, inner = inner, os.open("d" * 250, os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)
    assert "plan.json" in members(gather(desk.opened(), tmp_path))


def test_an_unwritable_archive_is_refused_with_another_name_to_give(desk):
    desk.up()
    with pytest.raises(StateError) as refused:
        gather(desk.opened(), Path("/proc/none.tar.gz"))
    assert "name another file with --output" in refused.value.hint


# SECURITY.md: An archive of `lab gather` holds no secret.
def test_an_archive_has_what_was_wanted_done_and_found(desk, tmp_path):
    desk.up()
    path = gather(desk.opened(), tmp_path)
    found = members(path)
    assert path == tmp_path / "overlay-evidence-19700112-134640.tar.gz"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(found) == [
        *OWN,
        "fake/holder.txt",
        *(f"fake/{machine.name}/state.txt" for machine in small_lab.intent().machines),
        KNOWN,
    ]
    assert found[KNOWN] == b"no known line in the logs\n"
    assert json.loads(found["plan.json"])["scenario"] == "overlay"
    assert json.loads(found["intent.json"])["machines"][0]["name"] == "worker1"
    journal = json.loads(found["journal.json"])
    assert journal["lab"]["status"] == "up"
    assert [step["state"] for step in journal["steps"]] == ["done"] * 4
    assert {row["name"] for row in journal["resources"]} >= {"worker1", "win1"}
    assert found["scenario.yaml"].decode() == desk.row().scenario_text
    assert "hybridlab" in json.loads(found["versions.json"])["packages"]


def test_what_is_known_of_the_lines_in_logs_is_in_it(told_of):
    line = "2026-11-22 07:54:55.117 <RMT> to-worker1: Error: Hold timer expired"
    pieces = [
        Evidence("worker2/bird/log", f"started\n{line}\n{line}\n".encode()),
        Evidence("worker2/bird/bird.conf", line.encode()),
        Evidence("api/events.txt", b'failed to get sandbox image "pause:9": not found\n'),
        Evidence("win1/kubelet.log.missing", line.encode()),
    ]
    known = told_of(pieces)[KNOWN].decode()
    assert known.startswith("fake/worker2/bird/log, line 3 and 1 more: BIRD's session 'to-worker1'")
    assert "; try: on both ends: birdc show protocols all 'to-worker1'; see" in known
    assert f"\n  {line}\nfake/api/events.txt, line 1: the pause image pause:9 is not" in known
    assert "bird.conf" not in known
    assert "missing" not in known


def test_the_results_of_the_last_run_are_in_it(desk, tmp_path):
    desk.up()
    for number in (1, 2):
        name = f"2026-{number}"
        run = RunRow(name, "overlay", "t", "overlay", "fake", "", 1.0, green=True, counts={})
        desk.store.record_run(run)
        directory = desk.store.run_directory("overlay", name)
        directory.mkdir(parents=True)
        (directory / "result.json").write_text(f"{{{number}}}")
    found = members(gather(desk.opened(), tmp_path))
    assert [name for name in found if name.startswith("runs/")] == ["runs/2026-2/result.json"]


def private_key() -> str:
    """As ssh-keygen writes one; of nobody."""
    body = base64.encodebytes(random.Random(1).randbytes(300)).decode()
    name = "OPENSSH PRIVATE KEY"
    return f"-----BEGIN {name}-----\n{body}-----END {name}-----\n"


# SECURITY.md: An archive of `lab gather` holds no secret.
def test_no_secret_of_the_lab_or_the_inventory_is_in_any_member(
    desk, told_of, tmp_path, monkeypatch
):
    desk.up()
    directory = desk.store.lab_directory("overlay")
    private = private_key()
    (directory / "ssh").mkdir()
    (directory / "ssh" / "client").write_text(private)
    (directory / "secrets").mkdir()
    (directory / "secrets" / "administrator").write_text("c0rrect horse\n")
    (tmp_path / "file").write_text("fr0m a file\n")
    (tmp_path / "file").chmod(0o600)
    text = f'[secrets.one]\nfile = "{tmp_path}/file"\n[secrets.two]\nenv = "LAB_SECRET"\n'
    (tmp_path / "lab.toml").write_text(text)
    monkeypatch.setenv("HYBRIDLAB_INVENTORY", str(tmp_path / "lab.toml"))
    monkeypatch.setenv("LAB_SECRET", "fr0m outside")
    secrets = [desk.row().token, "c0rrect horse", *private.splitlines()[1:-1]]
    pieces = [
        Evidence("worker1/console.log", "\n".join(secrets).encode()),
        Evidence("worker1/user-data", json.dumps({"key": private, "passwd": "s3same"}).encode()),
        Evidence("worker1/memory.bin", b"\0" + "\0".join(secrets).encode()),
        Evidence("seed", b"fr0m a file, fr0m outside"),
    ]
    found = told_of(pieces)
    assert found["fake/seed"] == b"[scrubbed], [scrubbed]"
    assert "fake/worker1/memory.bin" in found
    for name, content in found.items():
        for secret in (*secrets, "s3same"):
            assert secret.encode() not in content, name


def test_a_provider_error_is_recorded_and_the_rest_is_collected(told_of):
    found = told_of([Evidence("one.txt", b"1"), RuntimeError("no more")])
    assert list(found) == [*OWN, "fake/one.txt", "fake/stopped.txt", KNOWN]
    assert found["fake/stopped.txt"] == b"RuntimeError: no more\n"


def test_a_stuck_provider_is_abandoned_and_recorded(told_of, monkeypatch):
    stuck = threading.Event()
    monkeypatch.setattr(evidence, "SLOW_EVIDENCE_SECONDS", 0.2)
    monkeypatch.setattr(evidence, "SLACK_SECONDS", 0.0)
    found = told_of([Evidence("one.txt", b"1"), stuck, Evidence("two.txt", b"2")])
    stuck.set()
    assert list(found) == [*OWN, "fake/one.txt", "fake/stopped.txt", KNOWN]
    assert found["fake/stopped.txt"] == b"'fake' delivered nothing more within 0.2 s\n"


def test_all_of_it_has_an_end(told_of, monkeypatch):
    monkeypatch.setattr(evidence, "SECONDS", 0.3)
    found = told_of(itertools.repeat(Evidence("one.txt", b"1")))
    assert b"the time limit for all evidence was reached: 0.3 s" in found["fake/stopped.txt"]


def test_an_unavailable_own_file_is_recorded(told_of, monkeypatch):
    def broken():
        raise ValueError("no version")

    monkeypatch.setattr(evidence, "_collect_versions", broken)
    found = told_of([])
    assert found["versions.json.missing"] == b"ValueError: no version\n"
    assert "plan.json" in found


def test_an_archive_that_cannot_be_written_leaves_nothing(desk, tmp_path, monkeypatch):
    desk.up()
    (tmp_path / "taken").mkdir()
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(evidence, "archive_name", lambda *_: "taken")
    with pytest.raises(StateError, match="is a directory"):
        gather(desk.opened(), tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_a_failed_step_leaves_evidence_and_prints_its_path(desk):
    desk.provider.faults = Faults(fail_step="network")
    with pytest.raises(BrokenError) as caught:
        desk.up()
    (path,) = (desk.store.lab_directory("overlay") / "evidence").iterdir()
    assert f"the faults make it fail\n  evidence is in '{path}'" in str(caught.value)
    found = members(path)
    assert "step 'network': running step 'network': the faults make it fail" in str(
        found["trouble.txt"]
    )
    assert json.loads(found["journal.json"])["lab"]["status"] == "broken"
    assert found["fake/worker1/state.txt"] == b"there\n"


def test_evidence_stays_when_the_lab_goes_and_goes_when_it_is_empty(desk):
    desk.provider.faults = Faults(fail_step="network")
    with pytest.raises(BrokenError):
        desk.up()
    desk.down()
    directory = desk.store.lab_directory("overlay")
    assert [path.name for path in directory.iterdir()] == ["evidence"]
    for path in (directory / "evidence").iterdir():
        path.unlink()
    desk.down()
    assert not directory.exists()


def test_only_the_last_few_archives_are_kept(desk):
    desk.up()
    subject = subject_of(desk.opened())
    made = []
    for number in range(KEPT + 2):
        desk.now += 1 if number < KEPT else -3600  # the clock goes back
        made.append(keep(subject))
        os.utime(made[-1], (desk.now, desk.now))
    assert sorted(made[0].parent.iterdir()) == made[-KEPT:]


def test_the_latest_archive_of_all_labs_is_kept_when_the_clock_goes_back(desk):
    desk.up()
    subject = subject_of(desk.opened())
    other = desk.store.lab_directory("other") / "evidence"
    other.mkdir(parents=True)
    earlier = keep(subject)
    earlier.rename(other / earlier.name.replace("overlay-", "other-"))
    desk.now -= 3600
    latest = keep(subject)
    prune(desk.store, Kept(20, 30, 1), lambda _: None, yes=True)
    assert [*desk.store.directory.glob("labs/*/evidence/*")] == [latest]


@pytest.mark.parametrize("trouble", [RuntimeError("odd"), KeyboardInterrupt()])
def test_trouble_while_gathering_does_not_hide_the_trouble(desk, monkeypatch, trouble):
    def broken(*_):
        raise trouble

    monkeypatch.setattr(evidence, "write", broken)
    desk.provider.faults = Faults(fail_step="network")
    with pytest.raises(BrokenError, match=r"the faults make it fail\n  no evidence .*gathered: "):
        desk.up()
    assert desk.row().status == "broken"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("worker1/console.log", "worker1/console.log"),
        ("/etc/passwd", "etc/passwd"),
        ("../../up", "up"),
        ("a//./b/../c", "a/b/c"),
        ("what is\nthis\0?", "what_is_this__"),
        ("", "unnamed"),
        ("..", "unnamed"),
    ],
)
def test_a_member_stays_inside_its_archive(path, name):
    assert member_name(path) == name


def written(path: Path, *pieces: Evidence) -> dict[str, bytes]:
    write_archive(path, "overlay-evidence", pieces, lambda said: scrub(said, [b"s3same"]), 0.0)
    return members(path)


def test_of_two_pieces_of_one_name_both_are_there(tmp_path):
    pieces = [Evidence("a", b"1"), Evidence("a", b"2"), Evidence("/a", b"3")]
    assert written(tmp_path / "x.tar.gz", *pieces) == {"a": b"1", "a.2": b"2", "a.3": b"3"}


def test_of_what_is_too_long_the_end_is_kept_without_half_a_secret(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "PIECE_BYTES", 4)
    assert shorten(b"1234") == b"1234"
    assert shorten(b"123456") == b"[the first 2 bytes are left out]\n3456"
    monkeypatch.setattr(evidence, "PIECE_BYTES", 8)
    piece = Evidence("a", b"long ago: s3same, on")
    assert b"same" not in written(tmp_path / "x.tar.gz", piece)["a"]


G = GONE.decode()
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\nAAAA==\n-----END OPENSSH PRIVATE KEY-----\n"
HASH = "$6$salt.salt$abcdefghijklmnopqrstuvwxyz./0123456789"


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        (f"before\n{KEY}after", f"before\n{G}\nafter"),
        (f"two\n{KEY}{KEY}", f"two\n{G}\n{G}\n"),
        (json.dumps({"key": KEY, "on": 1}), json.dumps({"key": G + "\n", "on": 1})),
        ("-----BEGIN RSA PRIVATE KEY-----\nAAAA", G),
        (KEY.replace("b3Blbn", "Proc-Type: 4,ENCRYPTED\nDEK-Info: A,B\n\nAA"), G + "\n"),
        ("it says '-----BEGIN PRIVATE KEY-----'; then more", f"it says '{G}'; then more"),
        ("password: hunter2", f"password: {G}"),
        ("password: 'two words'\nnext", f"password: '{G}'\nnext"),
        ('{"password": "a\\"b", "x": 1}', f'{{"password": "{G}", "x": 1}}'),
        ("ADMIN_PASSWORD=x;y", f"ADMIN_PASSWORD={G};y"),
        ("<graphics type='vnc' passwd='x y'/>", f"<graphics type='vnc' passwd='{G}'/>"),
        ("client-secret=abc&on=1", f"client-secret={G}&on=1"),
        ("kubeadm join --token abc --on", f"kubeadm join --token {G} --on"),
        ("token abcdef.0123456789abcdef is", f"token {G} is"),
        ("https://me:pw@host/path", f"https://me:{G}@host/path"),
        ("client-key-data: LS0tLS1CRUdJTg==\nnext", f"client-key-data: {G}\nnext"),
        ("Authorization: Bearer abc.def", f"Authorization: Bearer {G}"),
        (f"root:{HASH}:19000:", f"root:{G}:19000:"),
        ("password_hash: x", f"password_hash: {G}"),
    ],
)
def test_what_looks_like_a_secret_goes(text, scrubbed):
    assert scrub(text.encode()).decode() == scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"pass": 360, "fail": 0}',
        "the token of the lab",
        "PasswordAuthentication no",
        "sshd: no password authentication",
        "tokens: 3",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI worker1",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "http://10.0.0.1:8080/path",
        "fe80::1/64 dev eth0 proto kernel",
        "secretRef:\n  name: x",
        "costs $6 or $12",
    ],
)
def test_what_is_no_secret_stays(text):
    assert scrub(text.encode()).decode() == text


@pytest.mark.parametrize("secret", ["p<&>\"'w", "päss", "a/b c%", "x" * SHORTEST])
def test_a_known_secret_goes_however_it_is_written(secret):
    raw = secret.encode()
    xml = secret.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    texts = [raw, base64.b64encode(raw)]
    if secret.isascii():
        texts += [json.dumps(secret)[1:-1].encode(), xml.encode()]
    for text in texts:
        assert scrub(b"(" + text + b")", [raw]) == b"(" + GONE + b")"


def test_in_what_is_no_text_only_known_secrets_go():
    picture = b"\x89PNG\0password: x known"
    assert scrub(picture, [b"known"]) == b"\x89PNG\0password: x " + GONE


def test_what_is_too_short_for_a_secret_tears_no_holes():
    assert scrub(b"a b c", [b"a", b""]) == b"a b c"


def test_of_a_key_file_no_line_is_left():
    private = private_key()
    values = list(secret_values(private.encode()))
    for line in private.splitlines()[1:-1]:
        assert line.encode() not in scrub(f"log: {line} end".encode(), values)


def test_words_of_programs_that_read_keys_are_no_secrets(desk, told_of):
    desk.up()
    machine = desk.store.lab_directory("overlay") / "machines" / "win1"
    machine.mkdir(parents=True)
    private, words = private_key(), "usage: ssh-keygen [-q] [-a rounds]"
    around = b"\x7fELF\0" + private.splitlines()[0].encode() + b"\0\n" + words.encode() + b"\n"
    (machine / "ssh-keygen").write_bytes(around)
    (machine / "client.pem").write_text(f"subject: system:node:win1\n{private}")
    key_lines = private.splitlines()[1:-1]
    log = "\n".join((words, "subject: system:node:win1", *key_lines))
    content = told_of([Evidence("win1/journal.txt", log.encode())])["fake/win1/journal.txt"]
    assert content.decode().splitlines() == [
        words,
        "subject: system:node:win1",
        *[G] * len(key_lines),
    ]


def test_files_that_came_out_of_an_image_hold_no_secret_of_the_lab(desk, told_of, tmp_path):
    desk.up()
    machine = desk.store.lab_directory("overlay") / "machines"
    machine.mkdir()
    example = private_key()
    (tmp_path / "example.pem").write_text(example)
    (machine / "example.pem").hardlink_to(tmp_path / "example.pem")
    line = example.splitlines()[1]
    assert told_of([Evidence("log", line.encode())])["fake/log"] == line.encode()


@given(
    st.lists(st.binary(min_size=SHORTEST, max_size=40), max_size=4),
    st.lists(st.binary(max_size=30), min_size=1, max_size=6),
)
def test_no_known_secret_is_ever_left(secrets, parts):
    text = b"".join(part + secret for part in parts for secret in (secrets or [b""]))
    done = scrub(text, secrets)
    for secret in secrets:
        assert secret not in done.replace(GONE, b"\xff\0\xff")


def test_a_result_that_is_a_pipe_is_said_to_be_missing(desk, tmp_path):
    desk.up("overlay")
    opened = desk.opened()
    row = RunRow("r1", "overlay", "", "overlay", "fake", "", 1.0, green=True, counts={})
    opened.store.record_run(row)
    result = opened.store.run_directory("overlay", "r1") / "result.json"
    result.parent.mkdir(parents=True)
    os.mkfifo(result)
    said: list[str] = []
    found = members(gather(opened, tmp_path, said.append))
    reason = "it is a pipe, not a regular file"
    assert found["runs/r1/result.json.missing"].decode() == f"{reason}\n"
    assert f"note: not in the archive: runs/r1/result.json: {reason}" in said
