"""The agent's archive: whole, the same every time, and in need of nothing."""

import io
import re
import sys
import zipfile

import pytest
from processes import run_program

from lab.machines.agents import bootstrap, control

STRANGERS = (
    "click",
    "pydantic",
    "ruamel",
    "rich",
    "jinja2",
    "dns",
    "pytest",
    "libvirt",
    "paramiko",
)


@pytest.fixture
def unpacked(tmp_path):
    with zipfile.ZipFile(io.BytesIO(control.build_archive())) as packed:
        packed.extractall(tmp_path)
    return tmp_path


def test_the_same_source_is_the_same_file():
    first = control.build_archive()
    control._built.cache_clear()
    again = control.build_archive()
    assert again is not first
    assert again == first


def test_the_agent_and_the_programs_that_it_starts_need_nothing_else_installed(unpacked):
    script = (
        "import sys\n"
        f"sys.path.insert(0, {str(unpacked)!r})\n"
        "import lab.machines.agents.agent\n"
        "from lab.providers.netns import capture, holder_program, prober, responder\n"
        "files = {getattr(one, '__file__', None) for one in sys.modules.values()}\n"
        f"print([name for name in {STRANGERS!r} if name in sys.modules])\n"
        "assert not [one for one in files if one and 'site-packages' in one], files\n"
    )
    done = run_program([sys.executable, "-I", "-S", "-c", script], check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_first_run_it_unpacks_itself_beside_and_then_runs_from_there(tmp_path):
    place = tmp_path / "node-x.pyz"
    place.write_bytes(control.build_archive())
    command = [sys.executable, "-I", "-S", str(place), "attach", "nobody"]
    for _ in range(2):
        done = run_program(command, check=False)
        assert done.returncode in {2, 3}, done
        assert re.search("entering (the pods|namespace 'nobody')|needs root", done.stderr)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["node-x", "node-x.pyz"]
    assert list((tmp_path / "node-x").rglob("*.pyc")), "compiled once"


def test_an_old_python_hands_over_to_a_newer_one_or_reports_its_version(monkeypatch, capsys):
    tried: list[str] = []

    def execvp(name: str, _: list[str]) -> None:
        tried.append(name)
        raise FileNotFoundError

    monkeypatch.setattr(bootstrap.os, "execvp", execvp)
    monkeypatch.setattr(bootstrap.sys, "version_info", (3, 9, 2))
    with pytest.raises(SystemExit):
        bootstrap.main()
    assert tried[-1] == "python3.11"
    assert "it needs Python 3.11 or newer, but python3 is 3.9.2" in capsys.readouterr().out
