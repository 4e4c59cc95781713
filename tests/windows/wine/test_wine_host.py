"""What the doctor says of Wine nodes, what a host is refused for, and what the cache keeps."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
from cluster_nodes import decided

from lab.inventory.inventory import STOCK
from lab.lifecycle.compilation import compile_scenario
from lab.machines.bundle.manifest import Blob, ContainerImage, Manifest, Program
from lab.machines.bundle.store import BundleStore
from lab.machines.nspawn.preflight import need
from lab.machines.nspawn.prepared import find_unused
from lab.machines.nspawn.provider import NspawnProvider
from lab.state.lock import lab_lock
from lab.windows.nodes.join_checks import AGNHOST
from lab.windows.wine import IMAGE, bundle, host, standins, template
from lab.windows.wine.system import WINE

PROGRAMS = ("powershell.zip", "agnhost.exe")


@pytest.fixture
def root_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as root on a machine with the processors that Windows programs are for."""
    monkeypatch.setattr(host.os, "geteuid", lambda: 0)
    monkeypatch.setattr(host.platform, "machine", lambda: host.PROCESSORS)


def stored(cache: Path, *names: str) -> Manifest:
    """A bundle with these Windows programs."""
    blob = Blob(sha256(b"x").hexdigest(), 1)
    programs = tuple(Program(name, "some", "windows", blob, "") for name in names)
    image = ContainerImage(f"{AGNHOST}:1", "linux", None, blob, blob, (), "")
    manifest = Manifest((("kubernetes", "1.36.1"),), programs, (image,))
    directory = BundleStore(cache).directory(manifest)
    directory.mkdir(parents=True)
    (directory / "manifest.json").write_bytes(manifest.encoded())
    return manifest


def findings(cache: Path, *, has_root: bool = True) -> dict[str, tuple[str, str, str]]:
    return {
        diagnosis.check: (diagnosis.level, diagnosis.seen, diagnosis.hint)
        for diagnosis in host.examine(cache, lambda _: has_root)
    }


@pytest.mark.usefixtures("root_user")
def test_a_host_with_everything_has_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, *PROGRAMS)
    standins.place(tmp_path).mkdir(parents=True)
    monkeypatch.setenv("PATH", "/nowhere")
    assert {level for level, _, _ in findings(tmp_path).values()} == {"ok"}


@pytest.mark.usefixtures("root_user")
def test_each_thing_that_is_missing_has_its_sentence_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, "agnhost.exe")
    monkeypatch.setenv("PATH", "/nowhere")
    lacking = findings(tmp_path, has_root=False)
    assert {level for level, _, _ in lacking.values()} == {"warn"}
    assert IMAGE in lacking["image"][1]
    assert "no bundle has PowerShell" in lacking["PowerShell"][1]
    assert lacking["PowerShell"][2].startswith("lab bundle create --kubernetes ")
    assert standins.COMPILER in lacking["stand-ins"][1]
    assert lacking["stand-ins"][2] == (
        "sudo apt-get install gcc-mingw-w64-x86-64-win32 binutils-mingw-w64-x86-64"
    )


@pytest.mark.usefixtures("root_user")
def test_a_wine_whose_probes_fail_is_named(tmp_path: Path) -> None:
    (tmp_path / host.FOLDER).mkdir()
    record = {"image": f"{IMAGE}-1", "probe": "symlinks", "lack": "no link"}
    (tmp_path / host.FOLDER / template.FAILED).write_text(json.dumps(record))
    level, words, hint = findings(tmp_path)["probes"]
    assert level == "warn"
    assert f"'{IMAGE}-1'" in words
    assert words.endswith("probe 'symlinks' says: no link")
    assert "Wine 10.0" in hint


def test_probes_that_do_not_hold_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = tmp_path / ".template-1.partial"
    (draft / template.TREE).mkdir(parents=True)

    def run_inside(*_: object) -> str:
        (draft / template.TREE / template.DRIVE).mkdir(parents=True, exist_ok=True)
        return "symlinks\t1\tno link\n"

    monkeypatch.setattr(template, "run_inside", run_inside)
    monkeypatch.setattr(template, "install", lambda *_: None)
    monkeypatch.setattr(template, "unpack", lambda *_: None)
    monkeypatch.setattr(template, "MODULES", tmp_path / "none")
    compiled = tmp_path / "compiled"
    compiled.mkdir()
    (compiled / "probe.exe").touch()
    root = tmp_path / f"{IMAGE}-1" / "root"
    with pytest.raises(template.BrokenError, match="probe 'symlinks' still says: no link"):
        template._fill(draft, root, "2022", compiled, tmp_path, print)
    assert json.loads((tmp_path / template.FAILED).read_text())["probe"] == "symlinks"


def test_other_processors_are_named_by_the_doctor_and_by_a_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host.platform, "machine", lambda: "aarch64")
    (only,) = findings(tmp_path).values()
    why = "Wine nodes need x86_64 processors, and this machine's are aarch64"
    assert only[:2] == ("warn", why)
    intent = compile_scenario("overlay", None, None, "kubernetes", real=True).intent
    assert NspawnProvider(STOCK).unfit(intent).startswith(f"{why} ('win1')")
    linux = compile_scenario("overlay", "linux", None, "kubernetes", real=True).intent
    assert not NspawnProvider(STOCK).unfit(linux)


@pytest.mark.usefixtures("root_user")
def test_a_lab_without_a_cluster_has_no_wine_nodes() -> None:
    refused = compile_scenario("overlay", None, None, "namespaces", real=True).intent
    assert "Wine nodes are nodes of a cluster" in NspawnProvider(STOCK).unfit(refused)
    cluster = compile_scenario("overlay", None, None, "kubernetes", real=True).intent
    assert not NspawnProvider(STOCK).unfit(cluster)


def test_what_wine_nodes_take_is_counted() -> None:
    every = need(compile_scenario("overlay", None, None, "kubernetes", real=True).intent)
    linux = need(compile_scenario("overlay", "linux", None, "kubernetes", real=True).intent)
    assert every.memory_mib - linux.memory_mib == 2 * WINE.memory_mib
    assert every.inotify - linux.inotify == 2 * WINE.inotify


def test_a_plain_user_is_told_about_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.platform, "machine", lambda: host.PROCESSORS)
    monkeypatch.setattr(host.os, "geteuid", lambda: 1000)
    (only,) = findings(tmp_path).values()
    assert "need root" in only[1]


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Manifest, list[Path]]:
    """A bundle, and every directory that a new lab would use."""
    manifest = stored(tmp_path, *PROGRAMS)
    root = tmp_path / "roots" / f"{IMAGE}-0123" / "root"
    root.mkdir(parents=True)
    archive = bundle.powershell((BundleStore(tmp_path), manifest))
    made = template.place(tmp_path, root, "2019", archive)
    paths = [standins.place(tmp_path), made, bundle.place(tmp_path, manifest, made)]
    for path in paths:
        path.mkdir(parents=True)
    return manifest, paths


def make(cache: Path, *names: str) -> list[Path]:
    paths = [cache / name for name in names]
    for path in paths:
        path.mkdir(parents=True)
    return paths


def test_what_neither_labs_nor_new_ones_use_is_unused(
    kept: tuple[Manifest, list[Path]], tmp_path: Path
) -> None:
    manifest, paths = kept
    old = make(
        tmp_path,
        *("wine/template-1", "wine/.template-2.partial", "wine/standins-1"),
        *("containers/wine-1", "containers/.wine-2.partial"),
    )
    (held,) = make(tmp_path, "containers/wine-3")
    assert sorted(host.unused(tmp_path, [manifest], [held])) == sorted(old)
    everything = [*paths, *old, held]
    assert sorted(host.unused(tmp_path, [], [])) == sorted(set(everything) - {paths[0]})


@pytest.mark.parametrize("name", ["wine/.template-1.partial", "containers/.wine-1.partial"])
def test_what_a_command_makes_now_is_left(name: str, tmp_path: Path) -> None:
    (path,) = make(tmp_path, name)
    final = path.name.removeprefix(".").removesuffix(".partial")
    locked = final if name.startswith("wine/") else f"containers-{final}"
    with lab_lock(tmp_path / "locks" / locked, "making"):
        assert not list(host.unused(tmp_path, [], []))
    assert list(host.unused(tmp_path, [], [])) == [path]


def test_prepared_bundles_of_wine_nodes_are_none_of_linux(tmp_path: Path) -> None:
    make(tmp_path, "containers/wine-0123456789abcdef", "containers/.wine-0.partial")
    old = make(tmp_path, "containers/0123456789abcdef", "containers/.0123456789abcdef.partial")
    assert sorted(find_unused(tmp_path, [])) == sorted(old)


def test_the_banner_and_the_disclaimer_say_what_windows_nodes_are() -> None:
    provider = NspawnProvider(STOCK)
    intent = compile_scenario("overlay", None, None, "kubernetes", real=True).intent
    disclaimer = "Windows nodes are Kubernetes' Windows programs on Wine, and HNS is emulated"
    assert provider.disclaimer(intent) == disclaimer
    assert provider.banner(intent).endswith(f"; {disclaimer}")
    linux = compile_scenario("overlay", "linux", None, "kubernetes", real=True).intent
    assert provider.disclaimer(linux) == ""
    assert provider.banner(linux) == provider.banner(None)


@pytest.mark.parametrize(
    ("topology", "refused"), [("upstream-vrrp", True), ("upstream-tor", False), ("hard-way", False)]
)
def test_a_topology_whose_gateway_hns_does_not_carry_is_refused(topology, refused) -> None:
    plan = decided(topology)
    given = (plan.cluster, plan.intent, plan.node, plan.manifest)
    refusals = WINE.join_refusals(*given)
    assert any("emulated HNS does not carry" in words for words in refusals) == refused
