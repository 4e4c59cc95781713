"""tools/hypervisor: libvirt's daemons where there is no init system."""

import os
import shutil
from pathlib import Path

import pytest
from processes import run_program

ROOT = Path(__file__).parents[4]
PROGRAM = Path(__file__).with_name("programs") / "alone.sh"
SCRIPT = ROOT / "tools" / "hypervisor"
NEEDED = ("libvirtd", "virtlogd", "tini", "virsh", "unshare", "setsid")
FAR = '[hypervisors.a]\nuri = "qemu+ssh://h/system"\n'
ALONE = (
    *("unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork"),
    *("--mount-proc", "--kill-child"),
)
ABSENT = [name for name in NEEDED if shutil.which(name) is None]


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces with a libvirtd in them need root")
@pytest.mark.skipif(bool(ABSENT), reason=f"not installed: {', '.join(ABSENT)}")
@pytest.mark.skipif(Path("/run/systemd/system").is_dir(), reason="systemd starts libvirtd here")
def test_daemons_are_started_once_started_again_and_ended(tmp_path):
    done = run_program([*ALONE, "sh", str(PROGRAM), str(tmp_path), str(ROOT)], check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = done.stdout.split("== ")
    said = {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}
    assert "does not answer\ncode 3" in said["before"]
    assert said["started"] == "hypervisor: libvirtd answers\n2\n"
    assert said["again"] == ""
    assert said["killed"] == "hypervisor: libvirtd answers\n"
    assert said["stopped"] == "hypervisor: libvirtd ended\nhypervisor: virtlogd ended\nnone\n"


@pytest.mark.parametrize(
    ("inventory", "wanted"),
    [
        (None, True),
        ("", True),
        ('owner = "me"\n', True),
        ('[hypervisors.a]\nuri = "qemu:///system"\n', True),
        (
            '[hypervisors.a]\nuri = "qemu+ssh://h/system"\n[hypervisors.b]\nuri="qemu+unix:///system"',
            True,
        ),
        (FAR + '# or uri = "qemu:///system"\n', False),
        ('hypervisors = { a = { uri = "qemu+tls://h/system" } }\n', False),
    ],
)
def test_own_libvirt_is_wanted_unless_the_inventory_names_others_alone(tmp_path, inventory, wanted):
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    if inventory is not None:
        (tmp_path / "lab.toml").write_text(inventory)
    done = run_program([SCRIPT, "wanted"], cwd=tmp_path, env=environment, check=False)
    assert (done.returncode == 0) == wanted


def test_unknown_word_is_refused():
    done = run_program([SCRIPT, "restart"], check=False)
    assert done.returncode == 2
    assert "start|stop|status|named|wanted" in done.stderr
