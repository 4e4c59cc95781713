"""Operations done for real on this machine, in a directory, with a systemctl that is none."""

from pathlib import Path

import pytest

from lab._errors import BrokenError, DeadlineError
from lab.cluster.linux.operations import (
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
from lab.cluster.linux.operations import (
    OperationRunner as Runner,
)
from lab.remote.local import LocalShell

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
    monkeypatch.setattr("lab.cluster.linux.operations._STAMPS", str(tmp_path / "stamps"))
    return units


@pytest.fixture
def hand(tmp_path, units):
    del units
    shell = LocalShell(become=False)
    return Runner("here", ClusterSite(lambda _name: shell, {}, tmp_path, lambda _text: None))


def test_files_and_links_are_written_once_with_their_modes(hand, tmp_path):
    wanted: Operations = (
        WriteFile(f"{tmp_path}/deep/er/file", "text\n"),
        WriteFile(f"{tmp_path}/secret", "key\n", 0o600, secret=True),
        Symlink(f"{tmp_path}/bin/program", "/somewhere/else"),
    )
    assert len(hand.run(wanted)) == 3
    assert (tmp_path / "deep/er/file").read_text() == "text\n"
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "bin/program").readlink() == Path("/somewhere/else")
    assert hand.run(wanted) == ()


def test_what_differs_alone_is_written_again(hand, tmp_path):
    wanted = (WriteFile(f"{tmp_path}/a", "a\n"), WriteFile(f"{tmp_path}/b", "b\n"))
    hand.run(wanted)
    (tmp_path / "a").chmod(0o666)
    assert hand.run(wanted) == (f"wrote {tmp_path}/a",)
    (tmp_path / "b").write_text("other\n")
    assert hand.run(wanted) == (f"wrote {tmp_path}/b",)


def test_a_link_gives_way_to_a_file_and_its_target_stays(hand, tmp_path):
    (tmp_path / "target").write_text("kept\n")
    (tmp_path / "path").symlink_to(tmp_path / "target")
    hand.run((WriteFile(f"{tmp_path}/path", "new\n"),))
    assert not (tmp_path / "path").is_symlink()
    assert (tmp_path / "target").read_text() == "kept\n"
    hand.run((Symlink(f"{tmp_path}/path", "target"),))
    assert (tmp_path / "path").readlink() == Path("target")


def test_a_command_gets_its_words_as_they_are_and_runs_unless_it_need_not(hand, tmp_path):
    made = Run(("touch", f"{tmp_path}/a b;c"), unless=f"[ -e '{tmp_path}/a b;c' ]")
    assert hand.run((made,)) == (f"ran touch '{tmp_path}/a b;c'",)
    assert (tmp_path / "a b;c").exists()
    assert hand.run((made,)) == ()


def test_a_failed_command_tells_its_last_words(hand):
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
    assert hand.run((gone,)) == (f"removed {tmp_path}/x.conf", f"removed {tmp_path}/y.conf")
    assert (tmp_path / "z.other").exists()
    assert hand.run((gone,)) == ()


def test_a_service_is_started_only_when_it_has_to_be(hand, units):
    def run(inputs, state="active", *, wait=True):
        """What is done where systemd says this of the service, once it has been started."""
        said = units / "x.service.active"
        if said.exists():
            said.write_text(f"{state}\n")
        return hand.run((SystemdUnit("x.service", inputs, wait=wait),))

    assert run("one") == ("started x.service",)
    assert (units / "x.service.enabled").exists()
    assert run("one") == ()
    assert run("two") == ("started x.service",)
    assert run("two", "failed") == ("started x.service",)
    assert run("two", "activating", wait=False) == ()
    assert run("two", "activating") == ("started x.service",)


def test_a_service_that_does_not_start_tells_its_log_and_what_it_means(hand, units):
    (units / "broken").touch()
    with pytest.raises(BrokenError, match=r"systemctl restart x\.service.*unknown flag"):
        hand.run((SystemdUnit("x.service", "one"),))


def test_a_service_killed_between_writing_and_starting_starts_the_next_time(hand, tmp_path):
    unit = WriteFile(f"{tmp_path}/x.conf", "old\n")
    hand.run((unit, SystemdUnit("x.service", inputs_digest((unit,)))))
    changed = WriteFile(f"{tmp_path}/x.conf", "new\n")
    hand.run((changed,))  # and killed
    assert hand.run((changed, SystemdUnit("x.service", inputs_digest((changed,))))) == (
        "started x.service",
    )


def test_an_enabled_unit_is_not_started(hand, units):
    assert hand.run((Enabled("x.service"),)) == ("enabled x.service",)
    assert hand.run((Enabled("x.service"),)) == ()
    assert not (units / "x.service.active").exists()


# SECURITY.md: No secret is on a command line.
def test_secrets_are_in_no_digest():
    one = WriteFile("/key", "HIDDEN\n", 0o600, secret=True)
    assert without_secrets((one,)) == (WriteFile("/key", "", 0o600, secret=True),)
