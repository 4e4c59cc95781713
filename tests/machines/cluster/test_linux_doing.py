"""Operations done for real on this machine, in a directory, with a systemctl that is none."""

from pathlib import Path

import pytest

from lab._errors import BrokenError, DeadlineError
from lab.machines.cluster.linux.operations import (
    ClusterSite,
    Enabled,
    Operations,
    Remove,
    Run,
    Symlink,
    SystemdUnit,
    WriteFile,
    inputs_digest,
    without_secrets,
)
from lab.machines.cluster.linux.operations import OperationRunner as Runner
from lab.shells.local import LocalShell

SYSTEMCTL = """echo "$@" >>"$UNITS/log"
verb=$1; shift; for unit; do :; done
case $verb in
is-enabled) [ -e "$UNITS/$unit.enabled" ] ;;
enable) touch "$UNITS/$unit.enabled" ;;
is-active) cat "$UNITS/$unit.active" 2>/dev/null || { echo inactive; exit 3; } ;;
restart) [ ! -e "$UNITS/broken" ] || exit 1; echo active >"$UNITS/$unit.active" ;;
*) : ;;
esac"""


@pytest.fixture
def units(tmp_path, monkeypatch, new_program):
    units = tmp_path / "units"
    units.mkdir()
    new_program("systemctl", SYSTEMCTL)
    new_program("journalctl", "echo 'unknown flag: --no-such-flag'")
    monkeypatch.setenv("UNITS", str(units))
    monkeypatch.setattr("lab.machines.cluster.linux.operations._STAMPS", str(tmp_path / "stamps"))
    return units


@pytest.fixture
def hand(tmp_path, units):
    del units
    shell = LocalShell(become=False)
    return Runner("here", ClusterSite(lambda _name: shell, {}, tmp_path, lambda _text: None))


def written(path):
    """When, and which file."""
    status = path.lstat()
    return status.st_ctime_ns, status.st_ino


def test_files_and_links_are_written_once_with_their_modes(hand, tmp_path):
    wanted: Operations = (
        WriteFile(f"{tmp_path}/deep/er/file", "text\n"),
        WriteFile(f"{tmp_path}/secret", "key\n", 0o600, secret=True),
        Symlink(f"{tmp_path}/bin/program", "/somewhere/else"),
    )
    hand.run(wanted)
    assert (tmp_path / "deep/er/file").read_text() == "text\n"
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "bin/program").readlink() == Path("/somewhere/else")
    before = [written(Path(one.path)) for one in wanted]
    hand.run(wanted)
    assert [written(Path(one.path)) for one in wanted] == before


def test_what_differs_alone_is_written_again(hand, tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    wanted = (WriteFile(str(a), "a\n"), WriteFile(str(b), "b\n"))
    hand.run(wanted)
    a.chmod(0o666)
    before = written(b)
    hand.run(wanted)
    assert (a.stat().st_mode & 0o777, written(b)) == (0o644, before)
    b.write_text("other\n")
    before = written(a)
    hand.run(wanted)
    assert (b.read_text(), written(a)) == ("b\n", before)


def test_a_link_gives_way_to_a_file_and_its_target_stays(hand, tmp_path):
    (tmp_path / "target").write_text("kept\n")
    (tmp_path / "path").symlink_to(tmp_path / "target")
    hand.run((WriteFile(f"{tmp_path}/path", "new\n"),))
    assert not (tmp_path / "path").is_symlink()
    assert (tmp_path / "target").read_text() == "kept\n"
    hand.run((Symlink(f"{tmp_path}/path", "target"),))
    assert (tmp_path / "path").readlink() == Path("target")


def test_a_command_gets_its_words_as_they_are_and_runs_unless_it_need_not(hand, tmp_path):
    made = Run(("mkdir", f"{tmp_path}/a b;c"), unless=f"[ -e '{tmp_path}/a b;c' ]")
    hand.run((made,))
    assert (tmp_path / "a b;c").exists()
    hand.run((made,))  # a second mkdir would fail


def test_a_failed_command_is_reported_with_its_last_lines(hand):
    with pytest.raises(BrokenError, match=r"on 'here': exit code 7: one / two") as caught:
        hand.run((Run(("sh", "-c", "echo one >&2; echo two >&2; exit 7"), hint="think"),))
    assert caught.value.hint == "think"


def test_a_command_that_does_not_end_is_ended(hand):
    with pytest.raises(DeadlineError):
        hand.run((Run(("sleep", "60"), seconds=0.1),))


def test_patterns_are_removed_and_what_is_gone_already_is_no_matter(hand, tmp_path):
    for name in ("x.conf", "y.conf", "z.other"):
        (tmp_path / name).touch()
    gone = Remove((f"{tmp_path}/*.conf", f"{tmp_path}/never"))
    for _ in range(2):
        hand.run((gone,))
        assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["z.other"]


def restarts(units):
    log = units / "log"
    return log.read_text().count("restart ") if log.exists() else 0


def test_a_service_is_started_only_when_it_has_to_be(hand, units):
    def starts(inputs, state="active", *, wait=True):
        """Whether it is started where systemd says this of it, once it has been started."""
        said = units / "x.service.active"
        if said.exists():
            said.write_text(f"{state}\n")
        before = restarts(units)
        hand.run((SystemdUnit("x.service", inputs, wait=wait),))
        return restarts(units) > before

    assert starts("one")
    assert (units / "x.service.enabled").exists()
    assert not starts("one")
    assert starts("two")
    assert starts("two", "failed")
    assert not starts("two", "activating", wait=False)
    assert starts("two", "activating")


def test_a_service_that_does_not_start_is_reported_with_its_log_and_meaning(hand, units):
    (units / "broken").touch()
    with pytest.raises(BrokenError, match=r"systemctl restart x\.service.*unknown flag"):
        hand.run((SystemdUnit("x.service", "one"),))


def test_a_service_killed_between_writing_and_starting_starts_the_next_time(hand, units, tmp_path):
    unit = WriteFile(f"{tmp_path}/x.conf", "old\n")
    hand.run((unit, SystemdUnit("x.service", inputs_digest((unit,)))))
    changed = WriteFile(f"{tmp_path}/x.conf", "new\n")
    hand.run((changed,))  # and killed
    hand.run((changed, SystemdUnit("x.service", inputs_digest((changed,)))))
    assert restarts(units) == 2


def test_an_enabled_unit_is_not_started(hand, units):
    for _ in range(2):
        hand.run((Enabled("x.service"),))
    assert (units / "log").read_text().count("enable ") == 1
    assert not (units / "x.service.active").exists()


# SECURITY.md: No secret is on a command line.
def test_secrets_are_in_no_digest():
    operation = WriteFile("/key", "HIDDEN\n", 0o600, secret=True)
    assert without_secrets((operation,)) == (WriteFile("/key", "", 0o600, secret=True),)
