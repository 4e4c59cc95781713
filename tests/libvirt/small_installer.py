"""A small installer medium in a vendor's layout: kernel, initramfs, an installation script.

Its parts are packages of the host's mirror: a kernel with drivers for CD drives, busybox
and GRUB. The installer reads its answers, partitions the disk, copies kernel, initramfs and boot
loader from the medium, and reboots.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.imaging import bootstrap, medium

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


def make(folder: Path) -> Path:
    """The medium, made in a folder; raises MissingError."""
    tree = folder / "packages"
    _download((_kernel_package(), *PACKAGES), tree)
    kernel = next(tree.glob("boot/vmlinuz-*")).read_bytes()
    base = next(tree.glob("**/modules/*/modules.builtin")).parent
    subprocess.run(["depmod", "-b", str(base.parents[2]), base.name], check=True)
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
        subprocess.run([*command, "-o", str(core), *wanted], check=True)
    except FileNotFoundError:
        raise MissingError("grub-mkimage is not installed: apt-get install grub-common") from None
    return core.read_bytes()


def _kernel_package() -> str:
    shown = subprocess.run(
        ["apt-cache", "depends", "--important", "linux-image-amd64"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    names = [line.rpartition(" ")[2] for line in shown.splitlines() if "linux-image-" in line]
    found = [name for name in names[1:] if "unsigned" not in name]
    if not found:
        raise MissingError("apt knows no linux-image-amd64")
    return found[0]


def _download(packages: tuple[str, ...], tree: Path) -> None:
    tree.mkdir()
    got = subprocess.run(
        ["apt-get", "download", "-q", *packages],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    if got.returncode != 0:
        raise MissingError(f"apt-get download: {got.stderr.strip().splitlines()[-1:]}")
    for package in tree.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(tree)], check=True)
        package.unlink()
