"""Installations that go wrong as true ones do: the product names the phase, and what it has seen.

The stand-in of Setup has the fault; it is not Windows. What is waited for is waited for shorter
than usual, or it would be for hours: nothing else of the product is changed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

libvirt = pytest.importorskip("libvirt", reason="libvirt-python is not installed")
pytest.importorskip("pycdlib", reason="pycdlib is not installed")

import beside_maker  # noqa: E402
from stand_in import linux, orders, setup_iso  # noqa: E402
from stand_in.guest import mutants  # noqa: E402
from stand_in.product import NAME, remove_sites  # noqa: E402

from lab._errors import BrokenError, DeadlineError, LabError  # noqa: E402
from lab.imaging import recipes  # noqa: E402
from lab.imaging.image_store import ImageStore  # noqa: E402
from lab.imaging.windows import monitor  # noqa: E402
from lab.imaging.windows.monitor import ORDER  # noqa: E402
from lab.inventory.inventory import MANAGEMENT, Hypervisor, Inventory  # noqa: E402
from lab.providers.libvirt import installer  # noqa: E402
from lab.providers.libvirt.host import Host  # noqa: E402
from lab.providers.libvirt.installer import LibvirtInstaller  # noqa: E402

pytestmark = pytest.mark.machines
PATIENCE = 0.5
"""Half a minute for each that a recipe has, in place of ten for an emulated processor."""
LONG = 8
SHORT = 1
"""Of these, for the phase that does not end; it is long enough for one that does."""


@dataclass(frozen=True)
class Fault:
    names: tuple[str, ...]
    phase: str
    """In which it stays."""
    kind: type[LabError]
    words: str
    """Of the message, as a pattern."""
    after: str = ""
    """That the story has to have reached."""


FAULTS = (
    Fault((mutants.IMAGE,), "winpe", DeadlineError, "phase 'winpe' has not ended.*No images are"),
    Fault(
        (mutants.DRIVER,), "winpe", DeadlineError, "phase 'winpe' has not ended.*no disk.*driver"
    ),
    Fault(
        (mutants.COPY,), "copy", DeadlineError, "phase 'copy' has not ended.*the last \\d+ s ago"
    ),
    Fault(
        (mutants.SPECIALIZE_EVER,),
        "",
        BrokenError,
        "begun phase 'specialize' 3 times: each time the machine was reset",
    ),
    Fault(
        (mutants.SPECIALIZE_STOPS,),
        "oobe",
        DeadlineError,
        "phase 'oobe' has not.*restarted unexpect",
    ),
    Fault(
        (mutants.SPECIALIZE_ONCE, mutants.LOGON_FAILS),
        "",
        BrokenError,
        "step openssh: a fault that the test has asked for",
        "first-logon: step 'openssh'",
    ),
    Fault(
        (mutants.LOGON_DIES,),
        "first-logon",
        DeadlineError,
        "phase 'first-logon' has not ended.*its last step is 'openssh'",
    ),
    Fault((mutants.WINRM,), "ready", LabError, "password.*phase 'ready'|'ready'.*password"),
    Fault((mutants.SYSPREP,), "sysprep", DeadlineError, "phase 'sysprep' has not ended"),
)


@pytest.fixture
def build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Fault], list[str]]]:
    try:
        connected = libvirt.open("qemu:///system")
        system = linux.linux()
    except libvirt.libvirtError as error:
        pytest.skip(f"no libvirtd: {error}")
    except linux.MissingError as why:
        pytest.skip(str(why))
    for one in (tmp_path, *tmp_path.parents[:2]):
        one.chmod(one.stat().st_mode | 0o055)
    monkeypatch.setattr(monitor, "EMULATED", PATIENCE)
    told: list[str] = []
    places: set[Path] = set()
    images = tmp_path / "cache" / "images"

    def tell(said: str) -> None:
        told.append(said)
        places.update(images.glob(".*.partial"))

    def objects() -> set[str]:
        kinds = (connected.listAllDomains, connected.listAllNetworks, connected.listAllStoragePools)
        endings = tuple(installer.site_token(place) for place in places)
        return {one.name() for kind in kinds for one in kind() if one.name().endswith(endings)}

    def run(fault: Fault) -> list[str]:
        iso = setup_iso.make(tmp_path, system, order=orders.golden(), mutants=fault.names)
        media = {"iso": iso, "virtio-win": beside_maker.virtio_win(tmp_path / "virtio-win.iso")}
        media["openssh"] = beside_maker.openssh(tmp_path / "openssh.zip")
        host = Host(Hypervisor(name="local", uri="qemu:///system", acceleration="tcg"))
        image_store = ImageStore(
            tmp_path / "cache",
            Inventory(hypervisors={"local": host.hypervisor}),
            LibvirtInstaller(host, MANAGEMENT),
            _recipes(tmp_path / "images", fault.phase),
        )
        image_store.remember(NAME, media)
        image_store.get(NAME, tell)
        return told

    run.told, run.cache = told, tmp_path / "cache"  # type: ignore[attr-defined]
    yield run
    left = objects()
    remove_sites(connected, images)
    assert places
    assert left == set()
    connected.close()


def _recipes(folder: Path, slow: str) -> Path:
    """The shipped recipe, with deadlines: one short."""
    for name in (NAME, "windows"):
        shutil.copytree(recipes.directory() / name, folder / name)
    recipe = folder / NAME / recipes.FILE
    lines = "".join(
        f"    {phase.replace('-', '_')}: {SHORT if phase == slow else LONG}\n" for phase in ORDER
    )
    text = recipe.read_text().rstrip() + f"\n  deadlines:\n{lines}"
    recipe.write_text(re.sub(r"memory: 4GiB", "memory: 1GiB", text))
    return folder


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: "+".join(fault.names))
def test_a_fault_is_named_by_its_phase(fault: Fault, build: Callable[[Fault], list[str]]) -> None:
    with pytest.raises(fault.kind) as given_up:
        build(fault)

    words = f"{given_up.value}"
    assert re.search(fault.words, words, re.DOTALL), words
    assert fault.after in "\n".join(build.told)  # type: ignore[attr-defined]
    assert "its screen is in" in words
    assert not list(build.cache.glob("images/*"))  # type: ignore[attr-defined]
