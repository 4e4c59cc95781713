from __future__ import annotations

import stat
from pathlib import Path

import pytest

from lab._errors import StateError
from lab.state.directory import make_private, state_directory


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
def test_the_environment_alone_decides(environment: dict[str, str], expected: str) -> None:
    assert state_directory(environment) == Path(expected)


@pytest.mark.parametrize("environment", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_a_home_the_error_says_which_variable_to_set(environment: dict[str, str]) -> None:
    with pytest.raises(StateError, match="HOME") as caught:
        state_directory(environment)
    assert "export HYBRIDLAB_STATE=" in caught.value.cure


def test_a_relative_state_directory_is_refused_with_the_absolute_one() -> None:
    with pytest.raises(StateError, match="not an absolute path") as caught:
        state_directory({"HYBRIDLAB_STATE": "state"})
    assert caught.value.cure == 'export HYBRIDLAB_STATE="$PWD/state"'


@pytest.mark.parametrize("variable", ["HYBRIDLAB_STATE", "XDG_STATE_HOME", "HOME"])
def test_a_path_that_is_no_text_is_refused(variable: str) -> None:
    with pytest.raises(StateError, match="not UTF-8") as caught:
        state_directory({variable: "/home/\udcff"})
    str(caught.value).encode()


def test_it_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


def test_one_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_file_in_its_place_is_a_state_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"'.*file'"):
        make_private(tmp_path / "file" / "state")
