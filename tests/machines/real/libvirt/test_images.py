"""Golden images for real: built, booted, installed, and what their first boot makes of a seed."""

import os
import re
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from processes import run_program

libvirt = pytest.importorskip("libvirt", reason="libvirt-python is not installed")

import booting  # noqa: E402
from real_lab import objects  # noqa: E402

from lab._errors import BrokenError, DeadlineError, PreflightError  # noqa: E402
from lab.inventory.inventory import STOCK, Hypervisor, ImageSource, Inventory  # noqa: E402
from lab.machines.images import bootstrap, medium  # noqa: E402
from lab.machines.images.golden import GoldenImage, cache_directory  # noqa: E402
from lab.machines.images.image_store import ImageStore  # noqa: E402
from lab.machines.libvirt.host import Host  # noqa: E402
from lab.machines.libvirt.installer import LibvirtInstaller  # noqa: E402

LABEL = "SMALL_1_0"
DONE = "hybridlab: installed"
PACKAGES = ("busybox-static", "grub-pc-bin")
MODULES = ("virtio_pci", "virtio_blk", "ahci", "sr_mod", "isofs", "crc32c_generic", "ext4")
INSTALL = """\
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
while read -r module; do insmod "/modules/$module"; done </modules/order
if grep -q small.installed /proc/cmdline; then
    mount -t ext4 /dev/vda1 /root && echo "small: runs from its own disk, $(cat /root/greeting)"
    poweroff -f
fi
echo "small: looking for the medium"
tries=100
while [ "$tries" -gt 0 ] && ! [ -b /dev/sr0 ]; do tries=$((tries - 1)); usleep 100000; done
mount -t iso9660 -o ro /dev/sr0 /seed
mkdir /answers
if [ -b /dev/sr1 ]; then mount -t iso9660 -o ro /dev/sr1 /answers
else cp /answers.conf /answers; fi
. /answers/answers.conf
[ "$disk" = /dev/vda ] || { echo "small: no answer to: which disk?"; sleep 3600; }
echo "small: partitioning $disk"
printf 'n\\np\\n1\\n2048\\n\\na\\n1\\nw\\n' | fdisk "$disk"
echo "small: copying"
dd if=/seed/boot.img of="$disk" bs=440 count=1 conv=notrunc
dd if=/seed/core.img of="$disk" bs=512 seek=1 conv=notrunc
mke2fs "${disk}1"
mount -t ext4 "${disk}1" /root && cp /seed/vmlinuz /seed/initrd /root &&
    echo "$greeting" >/root/greeting && umount /root && sync && echo "$done"
reboot -f
"""
GRUB = """\
linux (hd0,msdos1)/vmlinuz console=ttyS0 quiet small.installed
initrd (hd0,msdos1)/initrd
boot
"""


class MissingError(Exception):
    """Its parts are not available here."""


def make_medium(folder: Path) -> Path:
    """The medium, made in a folder; raises MissingError."""
    tree = folder / "packages"
    _download((_kernel_package(), *PACKAGES), tree)
    kernel = next(tree.glob("boot/vmlinuz-*")).read_bytes()
    base = next(tree.glob("**/modules/*/modules.builtin")).parent
    run_program(["depmod", "-b", str(base.parents[2]), base.name])
    order = bootstrap.load_order(
        MODULES, (base / "modules.dep").read_text(), (base / "modules.builtin").read_text()
    )
    ramdisk = bootstrap.boot_archive(
        INSTALL.encode(),
        next(tree.glob("**/bin/busybox")).read_bytes(),
        {path: (base / path).read_bytes() for path in order},
        b"",
    )
    files = {
        "vmlinuz": kernel,
        "initrd": ramdisk,
        "boot.img": next(tree.glob("**/i386-pc/boot.img")).read_bytes(),
        "core.img": _core(folder, next(tree.glob("**/i386-pc"))),
    }
    made = folder / "small.iso"
    made.write_bytes(medium.medium(LABEL, files))
    return made


def _core(folder: Path, modules: Path) -> bytes:
    early, core = folder / "early.cfg", folder / "core.img"
    early.write_text(GRUB)
    command = ["grub-mkimage", "-O", "i386-pc", "-d", str(modules), "-p", "/", "-c", str(early)]
    wanted = ("biosdisk", "part_msdos", "ext2", "linux", "boot")
    try:
        run_program([*command, "-o", str(core), *wanted])
    except FileNotFoundError:
        raise MissingError("grub-mkimage is not installed: apt-get install grub-common") from None
    return core.read_bytes()


def _kernel_package() -> str:
    shown = run_program(
        ["apt-cache", "depends", "--important", "linux-image-amd64"], check=False
    ).stdout
    names = [line.rpartition(" ")[2] for line in shown.splitlines() if "linux-image-" in line]
    found = [name for name in names[1:] if "unsigned" not in name]
    if not found:
        raise MissingError("apt knows no linux-image-amd64")
    return found[0]


def _download(packages: tuple[str, ...], tree: Path) -> None:
    tree.mkdir()
    got = run_program(["apt-get", "download", "-q", *packages], cwd=tree, check=False)
    if got.returncode != 0:
        raise MissingError(f"apt-get download: {got.stderr.strip().splitlines()[-1:]}")
    for package in tree.glob("*.deb"):
        run_program(["dpkg", "-x", str(package), str(tree)])
        package.unlink()


URI = "qemu:///system"
NETWORK = "imgtest"


@pytest.fixture
def connected():
    try:
        host = Host(Hypervisor(name="local", uri=URI))
        before = objects(host.connected, "image-test", NETWORK)
    except PreflightError as error:
        pytest.skip(f"no libvirtd: {error.happened}")
    yield host.connected
    assert objects(host.connected, "image-test", NETWORK) <= before
    host.connected.close()


@pytest.fixture
def network(connected):
    with booting.nat(connected, NETWORK) as made:
        yield made


@pytest.fixture
def folder(tmp_path):
    """Of disks that QEMU may read, whoever it runs as."""
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(path.stat().st_mode | 0o055)
    return tmp_path


@pytest.fixture(scope="session")
def golden():
    """Images by name, in this user's own cache: built by the first test that asks."""
    image_store = ImageStore(cache_directory(STOCK), STOCK)

    def image(name: str) -> GoldenImage:
        if shutil.which("mmdebstrap") is None:
            pytest.skip("mmdebstrap is not installed")
        return image_store.get(name, print)

    return image


@pytest.mark.parametrize("name", ["debian-12", pytest.param("debian-13", marks=pytest.mark.drill)])
def test_bootstrapped_image_boots_as_its_seed_specifies(name, golden, connected, network, folder):
    who = booting.identity(network, folder, "first")
    with booting.guest(connected, golden(name), who, network, folder) as guest:
        guest.wait()  # by the pinned host key, and by nothing else

        assert guest.ssh("hostname") == "node-first\n"
        assert guest.ssh("cat /etc/machine-id").strip() == sha256(b"first").hexdigest()[:32]
        assert guest.ssh("ls /etc/ssh/*_key") == "/etc/ssh/ssh_host_ed25519_key\n"
        assert guest.ssh("systemctl is-system-running --wait") == "running\n"
        assert guest.ssh("systemctl is-active qemu-guest-agent") == "active\n"
        assert guest.ssh("ip -br link show eth0").split()[:2] == ["eth0", "DOWN"]
        shown = guest.ssh("ip -o address show mgmt0; cat /sys/class/net/mgmt0/mtu")
        assert f"{network.address(10)}/24" in shown
        assert shown.endswith("1400\n")
        assert "default" not in guest.ssh("ip route")


def test_image_has_what_a_kubernetes_node_and_the_prober_need(golden, connected, network, folder):
    who = booting.identity(network, folder, "needs")
    with booting.guest(connected, golden("debian-12"), who, network, folder) as guest:
        guest.wait()

        assert guest.ssh("stat -fc %T /sys/fs/cgroup") == "cgroup2fs\n"
        modules = "overlay br_netfilter nf_tables vxlan ip_vs nf_conntrack veth bridge"
        guest.ssh(f"modprobe -a {modules}")
        program = (
            "import ctypes, fcntl, json, selectors, socket, struct, sys;"
            "ctypes.CDLL('libnftables.so.1'); print(sys.version_info >= (3, 11))"
        )
        assert guest.ssh(f'python3 -c "{program}"') == "True\n"
        guest.ssh("which nft ip tcpdump curl conntrack ping sysctl modprobe")
        guest.ssh("test -c /dev/net/tun && test -d /sys/kernel/debug/sched && ls /sys/fs/bpf")
        own = os.uname().nodename
        assert guest.try_ssh(f"grep -rw '{own}' /etc/hostname /etc/hosts").returncode != 0
        assert (
            guest.ssh("sshd -T | grep -i ^passwordauthentication") == "passwordauthentication no\n"
        )


def test_same_instance_keeps_its_changes_and_another_one_is_another_machine(
    golden, connected, network, folder
):
    image = golden("debian-12")
    booting.clone(image.disk, folder / "disk.qcow2", image.virtual_gib + 4)
    who = booting.identity(network, folder, "one")
    with booting.guest(connected, image, who, network, folder) as guest:
        guest.wait()
        assert "new instance one" in guest.ssh("dmesg")
        assert int(guest.ssh("df --output=size -BG / | tail -1").strip(" G\n")) > image.virtual_gib
        guest.ssh("echo changed >/etc/hostname; sync")

    with booting.guest(connected, image, who, network, folder) as guest:
        guest.wait()
        assert "new instance" not in guest.ssh("dmesg")
        assert guest.ssh("hostname") == "changed\n"

    other = booting.identity(network, folder, "two")
    with booting.guest(connected, image, other, network, folder) as guest:
        guest.wait()
        assert guest.ssh("hostname") == "node-two\n"


def test_cards_get_their_names_whatever_their_order(golden, connected, network, folder):
    who = booting.identity(network, folder, "cards")
    cards = who.nics
    twisted = (replace(cards[0], name="eth1"), replace(cards[1], name="eth0"))
    who = replace(who, nics=(twisted[1], twisted[0]))
    with booting.guest(connected, golden("debian-12"), who, network, folder, first=1) as guest:
        guest.wait()
        shown = {line.split()[0]: line.split()[2] for line in guest.ssh("ip -br link").splitlines()}
        assert shown["eth0"] == cards[1].mac
        assert shown["eth1"] == cards[0].mac


def test_console_gives_a_root_shell_to_who_presses_enter(golden, connected, network, folder):
    who = booting.identity(network, folder, "console")
    with booting.guest(connected, golden("debian-12"), who, network, folder) as guest:
        guest.wait()
        guest.ssh("systemctl is-system-running --wait")
        stream = connected.newStream()
        guest.domain.openConsole(None, stream, 0)
        stream.send(b"\r")
        guest.expect("root@node-console")
        stream.send(b"echo $((6 * 7)) is the answer\r")
        guest.expect("42 is the answer")
        stream.abort()


def recipe(folder: Path, answers: str, greeting: str = "hello") -> Path:
    """A folder of recipes with one that installs from the small installer."""
    own = folder / "recipes" / "small"
    own.mkdir(parents=True)
    (own / "answers.conf.j2").write_text(
        f'disk=/dev/vda\ngreeting="{greeting} from {{{{ label }}}}"\ndone="{{{{ done }}}}"\n'
    )
    (own / "image.yaml").write_text(
        "name: small\nsummary: Installed by a small installer\ndisk: 1GiB\nfirmware: bios\n"
        "first_boot: cloud-init\nuser: root\niso:\n  medium: the medium that the test has made\n"
        "  kernel: /vmlinuz\n  initrd: /initrd\n  arguments: console=ttyS0 quiet\n"
        f"  answers: {answers}\n  memory: 512MiB\n  vcpus: 1\n  minutes: 4\n"
        f'  done: "{DONE}"\n  phases:\n'
        "    - {name: partitioning, sees: 'small: partitioning'}\n"
        "    - {name: copying files, sees: 'small: copying'}\n"
    )
    return own.parent


@pytest.fixture(scope="session")
def small_iso(tmp_path_factory):
    try:
        return make_medium(tmp_path_factory.mktemp("installer"))
    except MissingError as why:
        pytest.skip(str(why))


def image_store_of(folder: Path, recipes: Path, iso: Path) -> ImageStore:
    inventory = Inventory(images={"small": ImageSource(url=str(iso))})
    host = Host(Hypervisor(name="local", uri=URI, storage=str(folder), acceleration="tcg"))
    return ImageStore(folder / "cache", inventory, LibvirtInstaller(host), recipes)


@pytest.mark.parametrize("answers", ["initrd", "cidata", "oemdrv"])
def test_installer_runs_unattended_and_its_disk_boots_by_itself(
    answers, small_iso, connected, folder
):
    before = sha256(small_iso.read_bytes()).hexdigest()
    told: list[str] = []
    image_store = image_store_of(folder, recipe(folder, answers), small_iso)

    image = image_store.get("small", told.append)

    story = "\n".join(told)
    assert re.search("partitioning.*copying files.*downloading the finished disk", story, re.DOTALL)
    assert image_store.get("small", pytest.fail) == image
    assert sha256(small_iso.read_bytes()).hexdigest() == before
    assert "small: copying" in (folder / "cache/logs/small.log").read_text(errors="replace")
    said = booting.run_to_its_end(connected, image.disk, folder)
    assert "small: runs from its own disk, hello from SMALL_1_0" in said


@pytest.mark.usefixtures("connected")
def test_installer_that_asks_is_ended_at_its_deadline_with_phase_and_console(small_iso, folder):
    recipes = recipe(folder, "initrd")
    (recipes / "small/answers.conf.j2").write_text("disk=nothing\n")
    text = (recipes / "small/image.yaml").read_text().replace("minutes: 4", "minutes: 1")
    (recipes / "small/image.yaml").write_text(text)

    with pytest.raises(DeadlineError) as refused:
        image_store_of(folder, recipes, small_iso).get("small", print)

    assert "small: no answer to: which disk?" in str(refused.value)
    assert not list((folder / "cache/images").iterdir())


@pytest.mark.usefixtures("connected")
def test_installer_that_goes_down_without_being_done_has_failed(small_iso, folder):
    recipes = recipe(folder, "initrd")
    (recipes / "small/answers.conf.j2").write_text('disk=/dev/vda\ndone="almost"\n')

    with pytest.raises(BrokenError) as refused:
        image_store_of(folder, recipes, small_iso).get("small", print)

    assert "stopped while copying files" in str(refused.value)
    assert "| almost" in str(refused.value)
