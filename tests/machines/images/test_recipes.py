"""Recipes: those that are shipped, and what is said of broken ones."""

import re
from pathlib import Path

import pytest
from processes import run_program
from ruamel.yaml import YAML

from lab._errors import UsageError
from lab.machines.images import inputs, iso, recipes
from lab.machines.images.recipes import RecipeError

BROKEN = Path(__file__).parents[2] / "cases/imaging/broken"


@pytest.mark.parametrize("name", recipes.shipped())
def test_shipped_recipe_is_valid(name):
    recipe, findings = recipes.check(recipes.directory() / name / recipes.FILE)
    assert findings == ()
    assert recipe is not None
    assert recipe.name == name


DIGESTS = {
    """\
name: of-packages
summary: Made from packages
disk: 20GiB
firmware: kernel
first_boot: light
user: root
bootstrap:
  distribution: debian
  suite: bookworm
  packages: [systemd, curl]
  modules: [virtio_blk]
  arguments: console=ttyS0
""": "362090cd079a359145163b687bda4cc0cdd2f8b0a2f5b3c05275e24b99f8ee31",
    """\
name: a-disk
summary: A vendor's disk
disk: 10GiB
firmware: bios
first_boot: cloud-init
user: debian
cloud:
  url: https://vendor.example/disk.qcow2
  checksums: https://vendor.example/SHA512SUMS
""": "fded0865dea06ca30d8bfc08ff7d6b5e41ede16acdb176bae2ae2fa1d3c99012",
    """\
name: an-installer
summary: A vendor's installer
disk: 20GiB
firmware: uefi
first_boot: cloud-init
user: debian
iso:
  medium: the first DVD
  kernel: /vmlinuz
  initrd: /initrd.gz
  arguments: console=ttyS0
  answers: oemdrv
  memory: 1GiB
  minutes: 180
  mirror: debian
  suite: bookworm
  packages: [curl]
  done: installed
  phases: [{name: starting, sees: Starting}]
""": "84b9918f8530ebdb19ff5630328e73d4c367ec5cae20f3b5eedcfd5f799ce189",
    """\
name: a-windows
summary: Windows
os: windows
disk: 64GiB
firmware: bios
first_boot: windows
user: Administrator
templates: windows
windows:
  release: "2022"
  time_zone: W. Europe Standard Time
  medium: the ISO
  known: [{name: a.iso, sha256: 3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a3a}]
  memory: 4GiB
  deadlines: {copy: 60, first_logon: 9}
""": "06187248e451b0411dcf226b2c9f2e723b13aef2349b10c96c17f1732823c93b",
}


@pytest.mark.parametrize(("text", "digest"), DIGESTS.items())
def test_digest_of_a_recipe_never_changes(text, digest, tmp_path):
    """Another one would have every image of every user built again."""
    name = text.partition("\n")[0].removeprefix("name: ")
    (tmp_path / name).mkdir()
    (tmp_path / name / recipes.FILE).write_text(text)
    (tmp_path / "windows").symlink_to(recipes.directory() / "windows")
    recipe = recipes.load(name, tmp_path).replace(files={"extra.j2": b"x"})
    there = {} if recipe.windows else {"file": f"sha256:{'0' * 64}"}
    assert inputs.digest_of(recipe, there) == digest


def test_shipped_recipes_are_those_that_the_page_lists():
    page = Path(__file__).parents[3] / "docs/images.md"
    listed = re.findall(r"^\| `([a-z0-9-]+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == list(recipes.shipped())


@pytest.mark.parametrize("case", sorted(BROKEN.glob("*.yaml")), ids=lambda path: path.stem)
def test_broken_recipe_is_reported_with_its_position(case, tmp_path):
    own = tmp_path / "debian-12"
    own.mkdir()
    (own / recipes.FILE).write_bytes(case.read_bytes())
    with pytest.raises(RecipeError) as refused:
        recipes.load("debian-12", tmp_path)
    said = "\n".join(refused.value.lines).replace(str(own / recipes.FILE), "FILE") + "\n"
    assert said == case.with_suffix(".txt").read_text(encoding="utf-8")
    assert refused.value.exit_code == 2


def test_unknown_image_is_refused_with_the_nearest_and_the_list():
    with pytest.raises(UsageError, match='did you mean "debian-1') as refused:
        recipes.load("debian-21")
    assert "rocky-9-iso" in str(refused.value)


ISO = [name for name in recipes.shipped() if name.endswith("-iso") and "windows" not in name]
VALUES = {
    "label": "VENDOR_9",
    "proxy": "http://proxy.example:3128",
    "mirror": "http://mirror.example/debian",
    "mirror_host": "mirror.example",
    "mirror_path": "/debian",
}


def answers(name: str) -> dict[str, str]:
    recipe = recipes.load(name)
    assert recipe.iso is not None
    own = {"user": recipe.user, "packages": recipe.iso.packages, "done": recipe.iso.done}
    answers = iso.answers(recipe, VALUES | own)
    assert "{{" not in iso.render(recipe.iso.arguments, VALUES | own)
    return {name: content.decode() for name, content in answers.items()}


@pytest.mark.parametrize("name", ISO)
def test_answers_end_with_what_the_recipe_waits_for_and_leave_nothing_of_the_machine(name):
    recipe = recipes.load(name)
    assert recipe.iso is not None
    text = "\n".join(answers(name).values())
    assert f"echo '{recipe.iso.done}' >/dev/console" in text
    for generalised in ("machine-id", "ssh_host_", "cloud"):
        assert generalised in text


def test_preseed_is_what_debconf_takes(tmp_path):
    path = tmp_path / "preseed.cfg"
    path.write_text(answers("debian-12-iso")["preseed.cfg"])
    try:
        told = run_program(["debconf-set-selections", "--checkonly", str(path)], check=False)
    except FileNotFoundError:
        pytest.skip("debconf-set-selections is not here")
    assert (told.returncode, told.stderr) == (0, "")
    assert "d-i mirror/http/hostname string mirror.example\n" in path.read_text()


AUTOINSTALL = {
    "version", "early-commands", "reporting", "error-commands", "user-data", "packages",
    "debconf-selections", "locale", "refresh-installer", "kernel", "keyboard", "source", "network",
    "proxy", "apt", "storage", "identity", "ssh", "snaps", "timezone", "codecs", "drivers", "oem",
    "updates", "active-directory", "ubuntu-pro", "interactive-sections", "late-commands",
    "shutdown",
}  # fmt: skip
"""Keys of Ubuntu 24.04's autoinstall-schema.json."""


def test_autoinstall_is_yaml_with_the_installers_own_keys():
    found = answers("ubuntu-2404-iso")
    assert set(found) == {"user-data", "meta-data"}
    assert found["user-data"].startswith("#cloud-config\n")
    document = YAML(typ="safe").load(found["user-data"])["autoinstall"]
    assert set(document) <= AUTOINSTALL
    assert document["version"] == 1
    assert all(isinstance(command, str) for command in document["late-commands"])
    assert document["late-commands"][-1] == "echo 'hybridlab: installed' >/dev/console"


def test_kickstart_is_what_anaconda_takes():
    parser = pytest.importorskip("pykickstart.parser", reason="pykickstart is not installed")
    version = pytest.importorskip("pykickstart.version")
    handler = version.makeVersion("RHEL9")
    parser.KickstartParser(handler).readKickstartFromString(answers("rocky-9-iso")["ks.cfg"])
    assert "cloud-init" in handler.packages.packageList
