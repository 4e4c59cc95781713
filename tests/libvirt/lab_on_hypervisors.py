"""The ``lab`` command on an inventory of hypervisors, and the objects on them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hypervisors import Hypervisor
from real_lab import RealLab

SCENARIO = Path(__file__).with_name("two-nodes.yaml")
NAME = "two"
IMAGES_POOL = "hybridlab-images"
STORAGE = "/var/lib/libvirt/images/hybridlab"


@dataclass(frozen=True)
class Lab(RealLab):
    """One lab on an inventory of hypervisors."""

    scenario: str = str(SCENARIO)
    name: str = NAME

    def up_words(self) -> tuple[str, ...]:
        return ("up", self.scenario, "--pods", "namespaces")

    def said(self, *words: str, code: int = 0) -> str:
        """The messages and the result of a command."""
        done = self.run(*words, code=code)
        return done.stderr + done.stdout

    def placed(self) -> dict[str, str]:
        """Machine to hypervisor."""
        layout = self.state / "labs" / self.name / "layout.json"
        return dict(json.loads(layout.read_text())["machines"])


def inventory(path: Path, hypervisors: Sequence[Hypervisor], management: str = "") -> Path:
    """Write an inventory of the hypervisors."""
    entries = "\n".join(one.entry() for one in hypervisors)
    given = f'[management]\ncidr = "{management}"\n\n' if management else ""
    path.write_text(given + entries, encoding="utf-8")
    return path


def virsh(one: Hypervisor, *words: str) -> list[str]:
    done = subprocess.run(
        ("virsh", "-q", "-c", one.uri, *words), capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def found(one: Hypervisor) -> set[str]:
    """Everything that labs have left there, except copies of images."""
    kinds = (("list", "--all"), ("net-list", "--all"), ("pool-list", "--all"))
    links = [link["ifname"] for link in json.loads(one.run("ip", "-json", "link"))]
    files = one.run("sh", "-c", f"find {STORAGE}/labs /var/lib/libvirt/qemu/save -type f || true")
    return {
        *(name for kind in kinds for name in virsh(one, *kind, "--name") if name != IMAGES_POOL),
        *(name for name in links if name.startswith(("hl", "hx", "vnet"))),
        *files.split(),
    }


def images(one: Hypervisor) -> list[str]:
    """The disks of images on the hypervisor."""
    listed = one.run("sh", "-c", f"ls {STORAGE}/images || true").split()
    return [name for name in listed if name.endswith(".qcow2")]
