"""Images pulled from a real registry, by skopeo."""

import json
import shutil
import stat
from pathlib import Path

import bundle_parts as parts
import pytest
from processes import left_after_kill
from registry import DOCKER_INDEX, Registry
from upstream_site import push

from lab._errors import BrokenError, PreflightError
from lab.machines.bundle import images, skopeo, upstream
from lab.machines.bundle.manifest import Wanted
from lab.machines.bundle.skopeo import repository
from lab.machines.bundle.store import Scratch
from lab.machines.images.download import Web
from lab.shells import programs

NAME = "registry.k8s.io/pause:3.10.2"


@pytest.fixture
def into(tmp_path):
    return Scratch(tmp_path / "a directory: of the user's")


def mirrored(registry: Registry, folder: str) -> Web:
    base = f"https://{registry.address}/v2/{folder}/"
    return Web({"https://registry.k8s.io/v2/": base}, {}, upstream.INSTEAD, upstream.TRUSTING)


@pytest.fixture
def pull(registry, into):
    def run(folder: str = "registry.k8s.io", name: str = NAME, *systems: str) -> list:
        wanted = Wanted(name, systems or ("linux",))
        return list(images.pull(mirrored(registry, folder), wanted, into, print))

    return run


def test_an_image_is_pulled_by_digest_once_its_tag_is_known(registry, pull, into):
    before = len(registry.asked())
    (found,) = pull()
    image = parts.Image(NAME)
    assert into.read(found.manifest) == image.manifest
    assert into.read(found.config) == image.config
    assert [into.read(layer.blob) for layer in found.layers] == [image.layer]
    assert found.source == "https://registry.k8s.io/v2/pause/"
    base = "/v2/registry.k8s.io/pause/manifests"
    asked = {path for path in registry.asked()[before:] if "/manifests/" in path}
    assert asked == {f"{base}/3.10.2", f"{base}/sha256:{found.manifest.sha256}"}


@pytest.mark.parametrize("indexed", [True, False])
def test_what_docker_has_published_stays_as_it_was_published(registry, pull, into, indexed):
    image = parts.Image(NAME, kind=parts.DOCKER)
    registry.push_image("docker/pause", image, parts.DOCKER)
    if indexed:
        index = json.loads(parts.index([image.entry()]))
        index["mediaType"] = DOCKER_INDEX
        registry.push("docker/pause", "3.10.2", json.dumps(index).encode(), DOCKER_INDEX)
    else:
        registry.push("docker/pause", "3.10.2", image.manifest, parts.DOCKER)
    (found,) = pull("docker")
    assert into.read(found.manifest) == image.manifest
    assert into.read(found.config) == image.config
    assert found.layers[0].media_type == parts.DOCKER_PARTS[1]
    assert into.read(found.layers[0].blob) == image.layer


def test_blobs_that_are_there_are_not_fetched_again(registry, pull):
    first = pull()
    before = len(registry.asked())
    assert pull() == first
    assert not [path for path in registry.asked()[before:] if "/blobs/" in path]


def test_a_layer_that_is_another_one_is_not_kept_and_the_next_try_goes_on(registry, pull, into):
    image = parts.Image("broken")
    image.config += b" " * 10
    image.describe(parts.MANIFEST)
    push(registry, "broken/pause:3.10.2", [image])
    layer = registry.blob(image.layer)
    layer.write_bytes(b"x" * len(image.layer))
    with pytest.raises(BrokenError, match="Digest did not match"):
        pull("broken")
    assert not (into.blobs / parts.sha256(image.layer)).exists()
    layer.write_bytes(image.layer)
    (found,) = pull("broken")
    assert into.read(found.layers[0].blob) == image.layer


@pytest.mark.parametrize(
    ("name", "systems", "words"),
    [
        ("registry.k8s.io/none:1", ("linux",), "manifest unknown"),
        ("registry.k8s.io/pause:none", ("linux",), "manifest unknown"),
        ("registry.k8s.io/etcd:3.6.8-0", ("windows",), "the registry has none for windows"),
    ],
)
def test_what_a_registry_does_not_have_is_refused_by_name(pull, name, systems, words):
    with pytest.raises(PreflightError, match=words) as refused:
        pull("registry.k8s.io", name, *systems)
    assert refused.value.doing == f"pulling image '{name}'"


def test_an_index_that_names_an_image_again_and_again_is_pulled_once(registry, pull):
    image = parts.Image(NAME)
    registry.push_image("again/pause", image)
    registry.push("again/pause", "3.10.2", parts.index([image.entry()] * 500))
    assert len(pull("again")) == 1


def test_a_manifest_with_another_size_is_refused(registry, pull):
    image = parts.Image(NAME)
    registry.push_image("huge/pause", image)
    index = parts.index([{**image.entry(), "size": 1 << 45}])
    registry.push("huge/pause", "3.10.2", index)
    with pytest.raises(PreflightError, match="wrong content: expected sha256:"):
        pull("huge")


def test_without_an_account_a_registry_that_wants_one_refuses(pull, tmp_path):
    (tmp_path / "home" / ".netrc").unlink()
    with pytest.raises(PreflightError, match=r"unauthorized|authentication required") as refused:
        pull()
    assert refused.value.hint == upstream.INSTEAD


def test_a_registry_that_nobody_vouches_for_is_refused(pull, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(PreflightError, match="certificate signed by unknown authority"):
        pull()


def test_an_account_is_in_a_file_for_its_owner_and_not_on_a_command_line(pull, monkeypatch):
    commands: list[str] = []
    files: list[tuple[int, str]] = []
    plain = programs.run

    def run(doing, command, *arguments, **named):
        commands.append(" ".join(command))
        for word in command:
            if "authfile=" in word:
                path = Path(word.partition("=")[2])
                files.append((stat.S_IMODE(path.stat().st_mode), path.read_text()))
        plain(doing, command, *arguments, **named)

    monkeypatch.setattr(programs, "run", run)
    pull()
    assert len(commands) == len(files) > 2
    assert {mode for mode, _ in files} == {0o600}
    assert all("bWU6c2VjcmV0" in content for _, content in files)
    assert not any("secret" in command or "bWU6" in command for command in commands)


def test_a_mirror_without_tls_is_asked_so_and_one_below_a_path_is_refused(tmp_path):
    url = "https://registry.k8s.io/v2/a/b/"
    plain = Web({"https://registry.k8s.io/v2/": "http://mirror:5000/v2/k8s/"}, {"http": "http://p"})
    with repository(plain, url, "it", tmp_path) as found:
        assert (found.name, found.verified) == ("docker://mirror:5000/k8s/a/b", False)
        assert found.web.environment()["http_proxy"] == "http://p"
    with repository(Web({}, {}), url, "it", tmp_path) as found:
        assert (found.name, found.verified) == ("docker://registry.k8s.io/a/b", True)
    below = Web({"https://registry.k8s.io/": "http://mirror/k8s/"}, {})
    with (
        pytest.raises(PreflightError, match="its mirror is http://mirror/k8s/v2/a/b/") as refused,
        repository(below, url, "it", tmp_path),
    ):
        pass
    assert '[mirrors] "https://registry.k8s.io/v2/" = "http://mirror/v2/..."' in refused.value.hint


def test_layers_that_registries_may_not_keep_come_from_their_own_address(registry, site, into):
    image = parts.Image(NAME, kind=parts.DOCKER)
    registry.push_image("foreign/pause", image, parts.DOCKER)
    kind = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
    image.change_layer(mediaType=kind, urls=["https://github.com/layer"])
    registry.push("foreign/pause", "3.10.2", image.manifest, parts.DOCKER)
    site.files["/github.com/layer"] = image.layer
    web = Web({**site.mirrors(), **mirrored(registry, "foreign").mirrors}, {})
    (found,) = images.pull(web, Wanted(NAME, ("linux",)), into, print)
    assert into.read(found.layers[0].blob) == image.layer
    assert "/github.com/layer" in site.paths()


@pytest.mark.parametrize("odd", ["https://a\0b/layer", "https://a\nb/layer"])
def test_an_address_of_a_layer_with_control_characters_is_refused(pull, monkeypatch, odd):
    image = parts.Image(NAME, kind=parts.DOCKER)
    image.change_layer(urls=[odd])
    foreign = image.manifest
    found = {f":{NAME.rpartition(':')[2]}": foreign, f"@sha256:{parts.sha256(foreign)}": foreign}
    monkeypatch.setattr(
        skopeo.Repository,
        "document",
        lambda _, reference, *options: image.config if options else found[reference],
    )
    monkeypatch.setattr(skopeo.Repository, "copy_layers", lambda *_: None)
    with pytest.raises(PreflightError, match="address contains control characters"):
        pull()


def test_without_skopeo_the_package_is_named(into, monkeypatch):
    monkeypatch.setattr(programs, "_find", lambda name: None if name == "skopeo" else "/bin/true")
    with pytest.raises(PreflightError, match="'skopeo' not found") as refused:
        list(images.pull(Web({}, {}), Wanted(NAME, ("linux",)), into, print))
    assert refused.value.hint == "apt-get install skopeo"


def test_a_full_disk_is_reported_with_a_hint(pull, new_program):
    new_program(
        "skopeo",
        f'case $* in *copy*) ;; *) exec {shutil.which("skopeo")} "$@" ;; esac\n'
        'echo \'time="now" level=fatal msg="writing blob: write \\"/x\\": '
        "no space left on device\"' >&2\nexit 1",
    )
    with pytest.raises(PreflightError, match="the disk is full") as refused:
        pull()
    assert "lab image gc" in refused.value.hint


def test_a_layer_of_any_size_has_its_time(registry, pull, monkeypatch):
    image = parts.Image("long")
    image.change_layer(size=1 << 49)
    push(registry, "long/pause:3.10.2", [image])
    given: list[float] = []
    plain = programs.run

    def run(doing, command, deadline, **named):
        given.append(deadline.seconds)
        plain(doing, command, deadline, **named)

    monkeypatch.setattr(programs, "run", run)
    with pytest.raises((BrokenError, PreflightError), match=r"Size mismatch|its size is not the"):
        pull("long")
    assert max(given) == 7 * 86400


def test_a_layer_larger_than_in_the_manifest_does_not_fill_the_disk(
    registry, pull, into, monkeypatch
):
    image = parts.Image("endless")
    push(registry, "endless/pause:3.10.2", [image])
    registry.blob(image.layer).write_bytes(bytes(8 << 20))
    monkeypatch.setattr(skopeo, "_OTHER_FILES", 1 << 20)
    largest = len(image.layer)
    with pytest.raises(PreflightError) as refused:
        pull("endless")
    assert refused.value.doing == f"pulling image '{NAME}'"
    limit = f"{(1 << 20) + largest:,}"
    assert refused.value.happened == (
        f"its registry sends a layer of more than {limit} bytes, and the largest one in its "
        f"manifest has {largest:,}"
    )
    assert refused.value.hint == upstream.TRUSTING
    assert [path.name for path in into.directory.iterdir() if "put-blob" in path.name] == []


def test_nothing_stays_of_a_pull_that_is_killed(tmp_path, into, new_program):
    started = tmp_path / "started"
    new_program("skopeo", f": >{started}\nexec sleep 600")
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    script = (
        "from pathlib import Path; from lab.machines.bundle.skopeo import repository\n"
        f"from lab.machines.images.download import Web; into = Path({str(into.directory)!r})\n"
        "with repository(Web({}, {}), 'https://127.0.0.1/v2/a/', 'it', into) as found:\n"
        "    found.document(':1')"
    )
    assert left_after_kill(script, tmp_path / "temporary", started.exists) == []
    assert [path.name for path in into.directory.iterdir()] == ["blobs"]
