"""The tool that makes bundles for tests: what can go wrong without an hour of building."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from bundle_cache import UNFINISHED, copy_out, finished_folder, link_files, only_one
from bundle_pins import CONFORMANCE, MORE_PARTS, PARTS, read_pins
from go_programs import copy_main, go_command, go_environment, run
from host_programs import libraries
from image_archives import Entry, Image, write_image

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, PreflightError, UsageError

HERE = Path(__file__).parent
PINS = read_pins()


def build_of(name, part):
    return next(build for build in PINS.builds if (build.name, build.part) == (name, part))


def made_image(folder, name="registry.k8s.io/thing:v1"):
    folder.mkdir()
    program = folder / "program"
    program.write_bytes(b"\x7fELF")
    entries = (Entry("/usr/bin/thing", source=program), Entry("/bin/link", link="thing"))
    return Image(name, (*entries, Entry("/tmp", mode=0o1777)), ("thing",), command=("wait",))


class TestPins:
    def test_every_part_but_the_images_has_programs_and_none_is_made_twice(self):
        assert {build.part for build in PINS.builds} == {*PARTS, *MORE_PARTS} - {"images"}
        made = [(b.system, b.folder, name) for b in PINS.builds for name in b.programs]
        assert sorted(set(made)) == sorted(made)

    def test_versions_told_to_kubernetes_agree(self):
        minor = PINS.versions["kubernetes"].split(".")[1]
        assert PINS.versions["staging"].split(".")[1] == minor
        for build in (build for build in PINS.builds if build.module.name == "kubernetes"):
            assert {one.split("=")[1] for one in build.sets if ".gitMinor=" in one} == {minor}

    @pytest.mark.parametrize("module", PINS.modules, ids=lambda module: module.name)
    def test_a_module_is_pinned_at_the_versions_of_the_pins(self, module):
        pinned = (module.folder / "go.mod").read_text()
        sums = (module.folder / "go.sum").read_text()
        for one in module.requires:
            path, version = one.split("@")
            assert f"{path} {version}" in pinned
            assert f"{path} {version} h1:" in sums
        assert pinned.count(f" {module.staging}\n") > 20 if module.staging else "=>" not in pinned

    def test_programs_have_the_names_that_the_layout_wants(self):
        assert build_of("etcd", "server").programs == ("etcd", "etcdctl")
        assert build_of("flannel", "windows").programs == ("flanneld.exe",)
        assert "win-overlay.exe" in build_of("cni-plugins", "windows").programs

    def test_images_need_the_linux_programs_and_no_others(self):
        parts = {build.part for build in PINS.chosen(frozenset({"images"}))}
        assert parts == {"server", "node"}
        assert {b.part for b in PINS.chosen(frozenset({"windows"}))} == {"windows"}

    def test_a_bundle_is_made_without_the_conformance_tests_and_they_with_its_programs(self):
        assert not {b.part for b in PINS.chosen(frozenset(PARTS))} & set(MORE_PARTS)
        wanted = {b.part for b in PINS.chosen(frozenset({CONFORMANCE}))}
        assert wanted == {CONFORMANCE, "server", "node"}

    def test_no_pin_tells_where_modules_are_fetched(self):
        for path in (HERE / "pins.toml", *HERE.glob("modules/*/go.*")):
            assert not re.search("https?://", path.read_text())


class TestBuilds:
    def test_a_program_says_its_version_and_has_no_c(self):
        build = build_of("kubernetes-node", "node")
        command = " ".join(go_command(build, Path("out")))
        said = f"-X k8s.io/component-base/version.gitVersion=v{PINS.versions['kubernetes']}"
        assert said in command
        assert "-trimpath" in command
        assert "-mod=readonly" in command
        assert go_environment(build)["CGO_ENABLED"] == "0"

    def test_a_test_becomes_a_program_that_is_not_examined_first(self):
        build = build_of("conformance", CONFORMANCE)
        assert build.programs == ("e2e.test",)
        assert go_command(build, Path("out"))[:5] == ["nice", "go", "test", "-c", "-vet=off"]

    def test_only_runc_holds_c_and_is_static_all_the_same(self):
        assert [build.name for build in PINS.builds if build.cgo] == ["runc"]
        assert "-extldflags -static" in " ".join(go_command(build_of("runc", "node"), Path("out")))

    def test_windows_programs_are_built_for_windows(self):
        assert go_environment(build_of("flannel", "windows"))["GOOS"] == "windows"

    def test_a_copied_main_leaves_out_what_the_pins_say_and_nothing_else(self, tmp_path):
        module = replace(PINS.modules[0], copies="ours", without=("example.test/cloud",))
        kept = ['import _ "example.test/cloud-free"', "func main() {}"]
        text = "\n".join([*kept[:1], 'import _ "example.test/cloud"', *kept[1:]])
        (tmp_path / "main.go").write_text(text + "\n")
        copy_main(module, tmp_path, tmp_path)
        assert (tmp_path / "ours" / "main.go").read_text().splitlines() == kept

    def test_a_failure_names_the_component_its_last_lines_and_a_cure(self, tmp_path):
        lines = "for i in $(seq 30); do echo line $i >&2; done; echo dial tcp: refused >&2; exit 3"
        with pytest.raises(BrokenError) as raised:
            run("building etcd for linux", ["sh", "-c", lines], Deadline(20), tmp_path)
        told = str(raised.value)
        assert told.startswith("building etcd for linux: sh ended with 3")
        assert "line 30" in told
        assert "line 10\n" not in told
        assert "module proxy" in raised.value.cure

    def test_a_program_that_is_missing_is_named(self, tmp_path):
        with pytest.raises(PreflightError, match="no program no-such-thing"):
            run("building etcd for linux", ["no-such-thing"], Deadline(20), tmp_path)

    def test_the_deadline_ends_a_command_with_its_children(self, tmp_path):
        script = "sleep 300 & echo $! > child; sleep 300"
        with pytest.raises(DeadlineError, match="building etcd"):
            run("building etcd for linux", ["sh", "-c", script], Deadline(0.5), tmp_path)
        child = int((tmp_path / "child").read_text())
        Deadline(10).wait("the end of the child", lambda: gone(child))


def gone(process):
    """Whether it has ended; nobody may have waited for it yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


class TestImages:
    def test_the_same_inputs_are_the_same_bytes(self, tmp_path):
        first = write_image(made_image(tmp_path / "a"), tmp_path)
        before = first.read_bytes()
        later = made_image(tmp_path / "b")
        os.utime(tmp_path / "b" / "program", (5, 5))
        (tmp_path / "b" / "program").chmod(0o500)
        shuffled = replace(later, entries=later.entries[::-1])
        assert write_image(shuffled, tmp_path).read_bytes() == before

    def test_both_descriptions_of_an_archive_name_blobs_that_are_in_it(self, tmp_path):
        image = made_image(tmp_path / "a")
        with tarfile.open(write_image(image, tmp_path)) as tar:
            blobs = {m.name: tar.extractfile(m).read() for m in tar.getmembers() if m.isfile()}
        for name, content in blobs.items():
            if name.startswith("blobs/"):
                assert hashlib.sha256(content).hexdigest() == name.rsplit("/", 1)[1]
        (entry,) = json.loads(blobs["index.json"])["manifests"]
        assert entry["annotations"]["io.containerd.image.name"] == image.name
        manifest = json.loads(blobs[blob(entry)])
        (docker,) = json.loads(blobs["manifest.json"])
        assert docker["RepoTags"] == [image.name]
        assert docker["Config"] == blob(manifest["config"])
        assert docker["Layers"] == [blob(one) for one in manifest["layers"]]
        config = json.loads(blobs[docker["Config"]])
        assert config["config"]["Entrypoint"] == ["thing"]
        assert config["config"]["Cmd"] == ["wait"]
        assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]
        assert len(blobs[docker["Layers"][0]]) == manifest["layers"][0]["size"]

    def test_a_layer_holds_the_folders_above_each_file_and_its_modes(self, tmp_path):
        archive = write_image(made_image(tmp_path / "a"), tmp_path)
        with tarfile.open(archive) as tar:
            (docker,) = json.load(tar.extractfile("manifest.json"))
            with tarfile.open(fileobj=tar.extractfile(docker["Layers"][0])) as layer:
                held = {m.name: m for m in layer.getmembers()}
        assert list(held) == ["bin", "bin/link", "tmp", "usr", "usr/bin", "usr/bin/thing"]
        assert held["tmp"].mode == 0o1777
        assert held["usr/bin/thing"].mode == 0o755
        assert held["bin/link"].linkname == "thing"
        assert {m.mtime for m in held.values()} == {0}

    def test_only_the_archive_is_left(self, tmp_path):
        write_image(made_image(tmp_path / "a"), tmp_path)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "thing-v1.tar"]

    def test_libraries_are_read_from_what_ldd_says(self):
        said = (
            "/usr/sbin/nft:\n"
            "\tlinux-vdso.so.1 (0x00007ffd2a5f2000)\n"
            "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f2f8c200000)\n"
            "\t/lib64/ld-linux-x86-64.so.2 (0x00007f2f8c4f5000)\n"
            "/bin/dash:\n"
            "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f3a7a000000)\n"
        )
        assert libraries(said) == ("/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2")


def blob(described):
    return "blobs/sha256/" + described["digest"].removeprefix("sha256:")


class TestCache:
    def test_a_folder_is_made_once(self, tmp_path, capsys):
        for _ in range(2):
            finished_folder(tmp_path / "etcd-1", "etcd", lambda into: (into / "etcd").touch())
        assert capsys.readouterr().err.count("etcd: begun") == 1
        assert (tmp_path / "etcd-1" / "etcd").stat().st_mode & 0o222 == 0

    def test_a_failure_leaves_nothing_that_looks_finished(self, tmp_path):
        def fails(into):
            (into / "half").touch()
            raise BrokenError("building etcd", "no")

        with pytest.raises(BrokenError):
            finished_folder(tmp_path / "etcd-1", "etcd", fails)
        assert list(tmp_path.iterdir()) == []

    def test_what_a_killed_run_left_is_removed(self, tmp_path):
        (tmp_path / f"{UNFINISHED}x" / "deep").mkdir(parents=True)
        with only_one(tmp_path, Deadline(10)):
            assert [p.name for p in tmp_path.iterdir()] == ["lock"]

    def test_a_folder_long_unused_is_removed_when_another_is_made(self, tmp_path):
        for name, days in (("old-1", 30), ("young-1", 3)):
            (tmp_path / name).mkdir()
            os.utime(tmp_path / name, (time.time() - days * 86400,) * 2)
        finished_folder(tmp_path / "etcd-1", "etcd", lambda into: (into / "etcd").touch())
        assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["etcd-1", "young-1"]

    def test_a_second_run_waits_and_then_names_the_first(self, tmp_path, capsys):
        holds = (
            "import sys, make; from pathlib import Path\n"
            "with make.only_one(Path(sys.argv[1]), make.Deadline(10)):\n"
            "    print('held', flush=True); sys.stdin.read()\n"
        )
        command = [sys.executable, "-c", holds, str(tmp_path)]
        pipe = subprocess.PIPE
        paths = os.pathsep.join([str(HERE), str(HERE.parents[1])])
        environment = os.environ | {"PYTHONPATH": paths}
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as other:
            assert other.stdout.readline() == b"held\n"
            named = pytest.raises(DeadlineError, match=f"process {other.pid}")
            with named, only_one(tmp_path, Deadline(0.3)):
                pass
            other.stdin.close()
        assert f"held by process {other.pid}" in capsys.readouterr().err

    def test_files_come_out_where_they_are_wanted_and_over_nothing(self, tmp_path):
        made = tmp_path / "made"
        (made / "cni").mkdir(parents=True)
        (made / "cni" / "bridge").write_text("x")
        copy_out(made, tmp_path / "out")
        assert (tmp_path / "out" / "cni" / "bridge").read_text() == "x"
        with pytest.raises(UsageError, match="not empty"):
            copy_out(made, tmp_path / "out")

    def test_files_on_another_disk_are_copied(self, tmp_path, monkeypatch):
        def crosses(_self, _target):
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(Path, "hardlink_to", crosses)
        (tmp_path / "made").mkdir()
        (tmp_path / "made" / "etcd").write_text("x")
        link_files(tmp_path / "made", tmp_path / "out")
        assert (tmp_path / "out" / "etcd").read_text() == "x"


class TestCommand:
    """The whole program, with a go that only leaves empty programs behind."""

    def test_it_says_the_parts(self, tmp_path):
        done = tool(tmp_path, "--only", "everything")
        assert done.returncode == 2
        for part in PARTS:
            assert part in done.stderr

    def test_programs_come_where_the_layout_wants_them_and_go_is_called_once(self, tmp_path):
        for name in ("first", "second"):
            done = tool(tmp_path, "--only", "windows", "--output", str(tmp_path / name))
            assert done.returncode == 0, done.stderr
            made = {str(p.relative_to(tmp_path / name)) for p in (tmp_path / name).rglob("*.exe")}
            wanted = (
                "kubelet kube-log-runner containerd containerd-shim-runhcs-v1 flanneld agnhost"
                " cni/win-bridge cni/win-overlay cni/host-local cni/flannel"
            )
            assert made >= {f"windows-amd64/{program}.exe" for program in wanted.split()}
            told = json.loads((tmp_path / name / "versions.json").read_text())
            assert told["kubernetes"] == PINS.versions["kubernetes"]
            assert "staging" not in told
        assert done.stderr == ""
        builds = [build for build in PINS.builds if build.part == "windows"]
        assert (tmp_path / "called").read_text().count("build\n") == len(builds)

    def test_out_of_time_it_names_the_component_it_was_at(self, tmp_path):
        done = tool(tmp_path, "--only", "windows", "--timeout", "0", SLOW="1")
        assert done.returncode == 3
        assert "building kubernetes for windows" in done.stderr
        assert [p.name for p in (tmp_path / "cache").iterdir()] == ["lock"]

    def test_told_to_end_it_ends_go_and_leaves_nothing_unfinished(self, tmp_path):
        with started(tmp_path, "--only", "windows", SLOW="1") as process:
            Deadline(20).wait("go's beginning", (tmp_path / "process").exists)
            process.terminate()
            assert process.wait(20) == 128 + 15
            assert "begun" in process.stderr.read()
        go = int((tmp_path / "process").read_text())
        Deadline(10).wait("the end of go", lambda: gone(go))
        assert [p.name for p in (tmp_path / "cache").iterdir()] == ["lock"]


GO = """#!/bin/sh
cd "$HOME"
echo "$1" >> called
[ "$1" = env ] && { echo go1.99; exit; }
[ "$1" = mod ] && { echo '{"Dir": "'"$HOME"'"}'; exit; }
[ "$SLOW" ] && { echo $$ > process.new; mv process.new process; exec sleep 300; }
for word; do
    case $word in
        -o=*) into=${word#-o=} ;;
        -*) ;;
        */*) touch "$into${word##*/}.exe" ;;
    esac
done
"""


def started(home, *arguments, **variables):
    (home / "main.go").touch()
    (home / "bin").mkdir(exist_ok=True)
    (home / "bin" / "go").write_text(GO)
    (home / "bin" / "go").chmod(0o755)
    paths = {"PATH": f"{home}/bin:{os.environ['PATH']}", "PYTHONPATH": str(HERE.parents[1])}
    command = [sys.executable, str(HERE / "make.py"), "--cache", str(home / "cache"), *arguments]
    environment = os.environ | paths | variables | {"HOME": str(home)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


def tool(home, *arguments, **variables):
    with started(home, *arguments, **variables) as process:
        out, wrote = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, wrote)
