"""``lab bundle``, from outside."""

import json
import os
import sys
from ipaddress import IPv4Network

import bundle_parts as parts
import pytest
from processes import lab, run_program

from lab.machines import caches as images
from lab.machines.libvirt import placement
from lab.machines.libvirt.placement import LibvirtLayout
from lab.machines.nspawn import layout as containers_layout
from lab.machines.nspawn import prepared
from lab.machines.nspawn.layout import NspawnLayout
from lab.providers.provider import LabHandle
from lab.state.directory import state_directory
from lab.state.lock import lab_lock
from lab.state.rows import LabRow
from lab.state.store import Store

WINDOWS = True


@pytest.fixture
def cache(tmp_path, monkeypatch):
    inventory = tmp_path / "lab.toml"
    inventory.write_text(f'cache = "{tmp_path}/cache"\n')
    monkeypatch.setenv("HYBRIDLAB_INVENTORY", str(inventory))
    return tmp_path / "cache"


def test_a_bundle_is_made_listed_shown_verified_and_kept(cache, source, capfd):
    code, out, err = lab(capfd, "bundle", "create", "--from", str(source))
    digest = out.strip()
    assert (code, len(digest)) == (0, 12)
    assert (cache / "bundles" / digest / "manifest.json").is_file()
    assert "copying 13 programs for windows" in err
    listed = lab(capfd, "bundle", "list")[1].splitlines()
    assert listed[0].split() == ["BUNDLE", "KUBERNETES", "FOR", "PROGRAMS", "IMAGES", "SIZE"]
    assert listed[1].split()[:6] == [digest, "1.36.1", "linux", "windows", "31", "13"]
    assert json.loads(lab(capfd, "bundle", "list", "--json")[1])[0]["digest"] == digest
    shown = lab(capfd, "bundle", "show")[1]
    assert f"bundle '{digest}': Kubernetes 1.36.1" in shown
    assert "image    registry.k8s.io/pause:3.10.2 (windows 10.0.20348.2762, 0 MB)" in shown
    whole = lab(capfd, "bundle", "show", digest[:4], "--json")[1]
    assert whole == (cache / "bundles" / digest / "manifest.json").read_text()
    assert lab(capfd, "bundle", "verify")[1] == "1 bundle verified\n"
    assert lab(capfd, "bundle", "gc", "--yes")[1] == "removed 0 objects, 0 MB\n"


def test_systems_and_version_can_be_asked_for(cache, source, capfd):
    asked = ("create", "--from", str(source), "--kubernetes")
    assert lab(capfd, "bundle", *asked, "1.36.1", "--os", "linux")[0] == 0
    assert json.loads(lab(capfd, "bundle", "list", "--json")[1])[0]["systems"] == ["linux"]
    code, _, err = lab(capfd, "bundle", *asked, "1.35")
    assert code == 4
    assert "it has Kubernetes 1.36.1, but 1.35 was requested" in err
    assert len(list((cache / "bundles").iterdir())) == 1


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("create", "--from", "/nowhere"), 2, "there is no such directory"),
        (("create", "--kubernetes", "1.20"), 2, "is too old"),
        (("create", "--os", "beos"), 2, "'beos' is not one of"),
        (("show",), 2, "there is none"),
        (("show", "0123"), 2, "none matches; the bundles are: none"),
        (("verify", "0123"), 2, "none matches"),
    ],
)
def test_refusal_has_a_hint_and_its_exit_code(arguments, code, words, capfd):
    ended, _, err = lab(capfd, "bundle", *arguments)
    assert ended == code
    assert words in err


@pytest.mark.usefixtures("cache")
def test_without_bundles_there_is_nothing_to_list_verify_or_remove(capfd):
    assert lab(capfd, "bundle", "list", "--json")[1] == "[]\n"
    assert lab(capfd, "bundle", "verify")[1] == "0 bundles verified\n"
    assert lab(capfd, "bundle", "gc")[1] == "would remove 0 objects, 0 MB\n"


def test_a_damaged_bundle_ends_with_3_or_4_and_gc_takes_a_foreign_one(cache, source, capfd):
    digest = lab(capfd, "bundle", "create", "--from", str(source))[1].strip()
    blob = next((cache / "bundles" / digest / "blobs" / "sha256").iterdir())
    blob.write_bytes(blob.read_bytes() + b"x")
    code, _, err = lab(capfd, "bundle", "verify")
    assert (code, "make it again" in err) == (3, True)
    manifest = cache / "bundles" / digest / "manifest.json"
    manifest.write_text(manifest.read_text().replace("kubelet", "cubelet", 1))
    assert lab(capfd, "bundle", "verify", digest)[0] == 4
    assert "unusable" in lab(capfd, "bundle", "list")[1]
    code, out, err = lab(capfd, "bundle", "gc")
    assert out.startswith("would remove 1 object,")
    assert out.endswith("; 'lab bundle gc --yes' removes it\n")
    assert lab(capfd, "bundle", "gc", "--yes", "--json")[0] == 0
    assert list((cache / "bundles").iterdir()) == []


def test_the_bundle_that_a_lab_was_made_from_stays(cache, source, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path / "state"))
    old = lab(capfd, "bundle", "create", "--from", str(source))[1].strip()
    (source / "linux-amd64" / "kubelet").write_bytes(parts.elf("another"))
    new = lab(capfd, "bundle", "create", "--from", str(source))[1].strip()
    with Store(state_directory(os.environ)) as journal:
        journal.put_lab(LabRow("one", "overlay", "", "", "libvirt", "t", "up", 1.0, 2.0, "d", {}))
        handle = LabHandle("one", journal.lab_directory("one"), "t")
        handle.directory.mkdir(parents=True)
    placement.save_layout(handle, LibvirtLayout({}, {}, {}, bundle=images.chosen(old).digest))
    assert lab(capfd, "bundle", "gc", "--yes")[1] == "removed 0 objects, 0 MB\n"
    placement.save_layout(handle, LibvirtLayout({}, {}, {}, bundle=images.chosen(new).digest))
    assert lab(capfd, "bundle", "gc", "--yes")[1].startswith("removed 1 object,")
    assert [path.name for path in (cache / "bundles").iterdir()] == [new]


def test_the_bundle_of_a_lab_of_system_containers_stays_and_what_was_prepared_of_others_goes(
    cache, source, tmp_path, monkeypatch, capfd
):
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path / "state"))
    old = images.chosen(lab(capfd, "bundle", "create", "--from", str(source))[1].strip())
    (source / "linux-amd64" / "kubelet").write_bytes(parts.elf("another"))
    new = images.chosen(lab(capfd, "bundle", "create", "--from", str(source))[1].strip())
    with Store(state_directory(os.environ)) as journal:
        journal.put_lab(LabRow("one", "overlay", "", "", "nspawn", "t", "up", 1.0, 2.0, "d", {}))
        handle = LabHandle("one", journal.lab_directory("one"), "t")
        handle.directory.mkdir(parents=True)
    management = IPv4Network("10.200.1.0/24")
    decided = NspawnLayout({}, management, (), old.digest, prepared.place(cache, old))
    containers_layout.save(handle, decided)
    ready = [prepared.place(cache, manifest) for manifest in (old, new)]
    unfinished = ready[0].with_name(".0123456789abcdef.partial")
    for path in (*ready, unfinished):
        path.mkdir(parents=True)
    with lab_lock(cache / "locks" / "containers-0123456789abcdef", "preparing a bundle"):
        assert lab(capfd, "bundle", "gc", "--yes")[1] == "removed 0 objects, 0 MB\n"
    assert lab(capfd, "bundle", "gc", "--yes")[1].startswith("removed 1 object,")
    assert set(ready[0].parent.iterdir()) == set(ready)
    handle.directory.joinpath("layout.json").unlink()
    assert lab(capfd, "bundle", "gc")[1].startswith("would remove 2 objects,")
    assert lab(capfd, "bundle", "gc", "--yes")[1].startswith("removed 2 objects,")
    assert [*ready[0].parent.iterdir()] == [ready[1]]
    assert [path.name for path in (cache / "bundles").iterdir()] == [new.short]


def test_show_needs_a_name_if_there_are_several_bundles(source, cache, capfd):
    lab(capfd, "bundle", "create", "--from", str(source))
    lab(capfd, "bundle", "create", "--from", str(source), "--os", "linux")
    code, _, err = lab(capfd, "bundle", "show")
    assert (code, "there are several: " in err) == (2, True)
    assert cache.is_dir()


def test_one_damaged_bundle_does_not_keep_the_others_from_being_read(cache, source, capfd):
    whole = lab(capfd, "bundle", "create", "--from", str(source))[1].strip()
    other = cache / "bundles" / ("0" * 12)
    other.mkdir()
    code, out, err = lab(capfd, "bundle", "verify")
    assert (code, out) == (3, "")
    assert f"bundle '{whole}' is intact" in err
    assert f"'{other}/manifest.json': no such file or directory" in err
    assert f"verifying 2 bundles: '{other.name}' is damaged" in err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_names_that_standard_output_cannot_spell_are_shown_by_their_numbers(
    source, tmp_path, monkeypatch, encoding
):
    odd = tmp_path / os.fsdecode(b"\xff-\xe2\x82\xac")
    odd.mkdir()
    inventory = odd / "lab.toml"
    inventory.write_text('cache = "cache"\n')  # beside it: 'show' says where it keeps a bundle
    monkeypatch.setenv("HYBRIDLAB_INVENTORY", str(inventory))
    monkeypatch.setenv("PYTHONIOENCODING", f"{encoding}:strict")
    for words, code in (
        (["create", "--from", str(odd)], 4),
        (["create", "--from", str(source)], 0),
        (["show"], 0),
    ):
        ended = run_program(
            [sys.executable, "-m", "lab", "bundle", *words], check=False, text=False
        )
        assert ended.returncode == code, ended.stderr
        assert b"Traceback" not in ended.stderr
        assert code == 0 or b"udcff" in ended.stderr
