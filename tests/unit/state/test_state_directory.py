import errno
import grp
import os
import pwd
import stat
import struct
from pathlib import Path

import pytest

import lab.state.directory
from lab._errors import StateError
from lab.cli.main import main
from lab.state.directory import (
    lab_directory,
    make_own,
    make_private,
    require_own,
    state_directory,
)
from lab.state.permissions import writer
from lab.state.store import Store


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HYBRIDLAB_STATE": "/own", "XDG_STATE_HOME": "/xdg", "HOME": "/home/a"}, "/own"),
        ({"XDG_STATE_HOME": "/xdg", "HOME": "/home/a"}, "/xdg/hybridlab"),
        ({"XDG_STATE_HOME": "", "HOME": "/home/a"}, "/home/a/.local/state/hybridlab"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/home/a"}, "/home/a/.local/state/hybridlab"),
        ({"HYBRIDLAB_STATE": "", "HOME": "/home/a"}, "/home/a/.local/state/hybridlab"),
    ],
)
def test_the_environment_alone_decides(environment, expected):
    assert state_directory(environment) == Path(expected)


@pytest.mark.parametrize(
    ("environment", "words", "hint"),
    [
        ({}, "HOME is not set", "export HYBRIDLAB_STATE="),
        ({"HOME": ""}, "HOME is not set", "export HYBRIDLAB_STATE="),
        ({"HOME": "relative"}, "HOME is 'relative'", "export HYBRIDLAB_STATE="),
        ({"HYBRIDLAB_STATE": "state"}, "not an absolute", 'export HYBRIDLAB_STATE="$PWD/state"'),
        ({"HYBRIDLAB_STATE": "/home/\udcff"}, "not UTF-8", "export HYBRIDLAB_STATE="),
        ({"XDG_STATE_HOME": "/home/\udcff"}, "not UTF-8", "export HYBRIDLAB_STATE="),
        ({"HOME": "/home/\udcff"}, "not UTF-8", "export HYBRIDLAB_STATE="),
    ],
)
def test_an_environment_without_a_usable_directory_is_refused(environment, words, hint):
    with pytest.raises(StateError, match=words) as caught:
        state_directory(environment)
    assert caught.value.hint.startswith(hint)
    str(caught.value).encode()


# SECURITY.md: The state directory is the caller's own.
def test_it_is_made_for_its_owner_alone_and_one_that_exists_keeps_its_mode(tmp_path):
    make_private(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    tmp_path.chmod(0o755)
    make_private(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"'.*file'"):
        make_private(tmp_path / "file" / "state")


NOBODY = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of others")


@pytest.fixture
def state(tmp_path):
    made = tmp_path / "above" / "state"
    make_private(made)
    return made


# SECURITY.md: The state directory is the caller's own.
@pytest.mark.parametrize(
    ("mode", "who"),
    [(0o777, "everyone"), (0o707, "everyone"), (0o770, "group '"), (0o720, "group")],
)
def test_a_state_directory_that_others_may_write_is_refused_with_the_cure(
    state, mode, who, monkeypatch, capsys
):
    state.chmod(mode)
    with pytest.raises(StateError) as raised:
        state_directory({"HYBRIDLAB_STATE": str(state)})
    assert raised.value.happened.startswith(who)
    assert f"may write '{state}'" in raised.value.happened
    assert raised.value.hint.startswith(f"'chmod go-w {state}'")
    monkeypatch.setenv("HYBRIDLAB_STATE", str(state))
    with pytest.raises(SystemExit) as ended:
        main(["list"])
    assert ended.value.code == 4
    assert f"may write '{state}'" in capsys.readouterr().err
    assert not list(state.iterdir())


def test_a_state_directory_is_refused_where_others_can_move_it_away(state):
    state.parent.chmod(0o777)
    with pytest.raises(StateError, match=f"everyone may write '{state.parent}'"):
        require_own(state)
    with pytest.raises(StateError, match=f"everyone may write '{state.parent}'"):
        require_own(state.parent / "not" / "made")
    state.parent.chmod(0o1777)  # as /tmp: only its owner can move it
    require_own(state)
    require_own(state.parent / "not" / "made")


def test_a_shared_directory_itself_is_no_state_directory(state):
    state.chmod(0o1777)
    with pytest.raises(StateError, match="is shared by all users") as raised:
        require_own(state)
    assert raised.value.hint.startswith("use a directory of your own in it")


def test_what_a_link_leads_to_is_looked_at(state, tmp_path):
    link = tmp_path / "link"
    link.symlink_to("above/state")
    require_own(link)
    state.chmod(0o777)
    with pytest.raises(StateError, match=f"everyone may write '{state}'"):
        require_own(link)
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    require_own(loop)  # opening it says what is wrong


# SECURITY.md: The state directory is the caller's own.
@AS_ROOT
@pytest.mark.parametrize("part", [".", ".."])
def test_root_takes_no_directory_of_a_user(state, part):
    """Nor one that stands in it, which the user can move away."""
    os.chown(state / part, NOBODY, NOBODY)
    with pytest.raises(StateError, match="belongs to nobody, and you are root") as raised:
        require_own(state)
    assert raised.value.hint.startswith("run it as nobody, or without nobody's environment")


# SECURITY.md: The state directory is the caller's own.
@pytest.mark.parametrize("call", [make_own, Store])
def test_a_directory_that_somebody_removes_at_once_is_not_used(tmp_path, monkeypatch, call):
    """Another one could be made in its place."""
    monkeypatch.setattr(lab.state.directory, "make_private", lambda _: None)
    with pytest.raises(StateError, match=f"'{tmp_path / 'new'}' is not there any more"):
        call(tmp_path / "new")


def test_a_link_that_is_removed_while_it_is_followed_is_no_defect(state, monkeypatch):
    link = state.with_name("link")
    link.symlink_to(state)
    monkeypatch.setattr(os.path, "realpath", lambda _: str((state / "gone").readlink()))
    require_own(link)
    state.chmod(0o777)
    with pytest.raises(StateError, match="everyone may write"):
        require_own(link)


# SECURITY.md: The state directory is the caller's own.
@AS_ROOT
def test_a_user_takes_no_directory_that_sudo_has_made(state, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    with pytest.raises(StateError, match="belongs to root, and you are nobody") as raised:
        require_own(state)
    assert raised.value.hint.startswith(f"'sudo chown -R $USER {state}' if 'sudo -E lab'")
    state.chmod(0o755)
    with pytest.raises(StateError) as raised:
        require_own(state)
    assert raised.value.hint.startswith("use one of your own")
    os.chown(state, NOBODY, NOBODY)
    require_own(state)


# SECURITY.md: The state directory is the caller's own.
# SECURITY.md: What root writes is not given away.
# SECURITY.md: An inventory is trusted.
@AS_ROOT
@pytest.mark.parametrize(
    ("part", "owner", "group", "mode", "sudo", "trusted", "own"),
    [
        ("state", 0, 0, 0o755, "", True, True),
        ("state", 0, 0, 0o775, "", True, False),  # root's group has no one else
        ("state", 0, 1, 0o775, "", False, False),
        ("state", 0, 0, 0o1777, "", False, False),
        ("state", NOBODY, 0, 0o755, "", False, False),
        ("state", NOBODY, 0, 0o755, str(NOBODY), True, False),
        ("state/file", 0, 1, 0o660, "", False, False),
        ("state/file", 0, 0, 0o1666, "", False, False),
        ("above", 0, 0, 0o775, "", True, True),
        ("above", 0, 1, 0o775, "", False, False),
        ("above", 0, 0, 0o777, "", False, False),
        ("above", 0, 0, 0o1777, "", True, True),
        ("above", NOBODY, 0, 0o755, "", False, False),
        ("above", NOBODY, 0, 0o755, str(NOBODY), True, False),
        ("link", NOBODY, 0, None, "", False, False),
        ("link", NOBODY, 0, None, str(NOBODY), True, False),
    ],
)
def test_one_rule_decides_who_may_write_there(  # noqa: PLR0913, PLR0917  what there is, and what follows
    tmp_path, monkeypatch, part, owner, group, mode, sudo, *, trusted, own
):
    """Of a state directory, root's group and who called sudo count as others."""
    (tmp_path / "above" / "state").mkdir(parents=True)
    (tmp_path / "above" / "state" / "file").touch()
    (tmp_path / "link").symlink_to("above")
    monkeypatch.setenv("SUDO_UID", sudo)
    changed = tmp_path / (part if part in {"above", "link"} else f"above/{part}")
    os.chown(changed, owner, group, follow_symlinks=False)
    if mode is not None:
        changed.chmod(mode)
    path = tmp_path / "link" / (part if part == "state/file" else "state")
    assert (writer(path) is None) == trusted
    assert (writer(path, own=True) is None) == own


STRANGER = 4711
ACL = "system.posix_acl_access"
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20


def set_acl(path, *entries, mask=0o7):
    """Give a file the ACL with these (tag, permissions, id) besides owner, group, mask, others."""
    nobody = 0xFFFFFFFF
    every = [(USER_OBJ, 0o7, nobody), (GROUP_OBJ, 0o5, nobody), (OTHER, 0o5, nobody), *entries]
    every.append((MASK, mask, nobody))
    content = b"".join(struct.pack("<HHI", *entry) for entry in sorted(every))
    try:
        os.setxattr(path, ACL, struct.pack("<I", 2) + content)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        pytest.skip("this file system has no ACLs")


# SECURITY.md: Who may write a file is known from its owner, mode, groups and POSIX ACL.
@pytest.mark.parametrize("part", ["above", "above/state", "above/state/lab.toml"])
@pytest.mark.parametrize(
    ("entry", "mask", "who"),
    [
        ((USER, 0o7, STRANGER), 0o7, f"user '{STRANGER}'"),
        ((USER, 0o2, STRANGER), 0o2, f"user '{STRANGER}'"),
        ((GROUP, 0o6, STRANGER), 0o7, f"group '{STRANGER}'"),
        ((USER, 0o5, STRANGER), 0o7, None),
        ((USER, 0o7, STRANGER), 0o5, None),
        ((USER, 0o7, os.geteuid()), 0o7, None),
        ((USER, 0o7, 0), 0o7, None),
    ],
)
def test_who_an_acl_lets_write_is_seen(tmp_path, part, entry, mask, who):
    """The mode has the ACL's mask where the group's permissions are otherwise."""
    file = tmp_path / "above" / "state" / "lab.toml"
    file.parent.mkdir(parents=True)
    file.touch()
    path = tmp_path / part
    set_acl(path, entry, mask=mask)
    assert bool(path.stat().st_mode & stat.S_IWGRP) == bool(mask & 0o2)
    for own in (False, True):
        finding = writer(file, own=own)
        if who is None:
            assert finding is None
            continue
        assert finding is not None
        assert finding[0].startswith(f"{who} may write '{path}'")
        assert finding[1] == f"'chmod go-w {path}'"
    if who is not None:
        path.chmod(path.stat().st_mode & ~0o022)
        assert writer(file) is None, "the advice does not help"


# SECURITY.md: Who may write a file is known from its owner, mode, groups and POSIX ACL.
@pytest.mark.parametrize(
    ("members", "primary", "private"),
    [
        ((), (), True),
        (("owner",), ("owner",), True),
        ((), ("owner", "root"), True),
        ((), ("owner", "other"), False),
        (("other",), (), False),
        (("of a directory service",), (), False),
    ],
)
def test_a_group_is_private_only_if_nobody_else_is_in_it(
    tmp_path, monkeypatch, members, primary, private
):
    """``useradd -g GROUP`` makes a member whom the group's own list does not have."""
    ids = {"owner": os.geteuid(), "root": 0, "other": STRANGER}
    group = os.getegid()
    users = [
        pwd.struct_passwd((name, "x", ids[name], group if name in primary else 1, "", "/", ""))
        for name in ids
    ]
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o775)
    os.chown(shared, -1, group)
    monkeypatch.setattr(pwd, "getpwall", lambda: users)
    monkeypatch.setattr(pwd, "getpwuid", lambda _number: users[0])
    entry = grp.struct_group(("owner", "x", group, list(members)))
    monkeypatch.setattr(grp, "getgrgid", lambda _number: entry)
    finding = writer(shared / "lab.toml")
    assert (finding is None) == private
    assert private or finding == (
        f"group 'owner', which has other members, may write '{shared}'",
        f"'chmod go-w {shared}'",
    )


def test_a_directory_that_others_may_write_by_the_time_it_is_used_is_refused(tmp_path):
    state = state_directory({"HYBRIDLAB_STATE": str(tmp_path / "state")})
    state.mkdir()
    state.chmod(0o777)
    with pytest.raises(StateError, match="everyone may write"):
        Store(state)
    assert list(state.iterdir()) == []


@pytest.mark.parametrize("name", ["../../victim", "/tmp/victim", "..", ".", ""])
def test_a_name_in_the_journal_that_no_lab_can_have_leads_nowhere(tmp_path, name):
    with pytest.raises(StateError, match="not a lab name"):
        lab_directory(tmp_path, name)
