#!/bin/busybox sh
# The stand-in's first program: finds its root file system, on the medium or on the disk.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
exec </dev/tty0 >/dev/tty0 2>&1

stop() {
    echo "stand-in: $*" | tee /dev/ttyS0
    while :; do sleep 3600; done
}

load() { insmod "/modules/$1" 2>/dev/null; }

while read -r module; do load "$module"; done </modules/order

mount_medium() {
    for drive in /dev/sr*; do
        mount -t udf -o ro "$drive" /seed 2>/dev/null || continue
        [ -f /seed/stand-in/root.ext4 ] && return 0
        umount /seed
    done
    return 1
}

mount_disk() {
    for partition in /dev/vd?[0-9] /dev/sd?[0-9]; do
        [ -b "$partition" ] || continue
        # behind 8 GiB of NTFS
        losetup -o 8589934592 /dev/loop1 "$partition" 2>/dev/null || continue
        if mount -t ext4 /dev/loop1 /seed 2>/dev/null; then
            [ -f /seed/Windows/stand-in/root.ext4 ] && return 0
            umount /seed
        fi
        losetup -d /dev/loop1
    done
    return 1
}

case "$(cat /proc/cmdline)" in
*stand_in=disk*) from=disk; image=/seed/Windows/stand-in/root.ext4
    # A driver for the disk was laid down by Setup, or there would be nothing to start from.
    for module in virtio.ko virtio_ring.ko virtio_pci_legacy_dev.ko virtio_pci_modern_dev.ko \
        virtio_pci.ko virtio_blk.ko virtio_scsi.ko; do load "$module"; done ;;
*) from=medium; image=/seed/stand-in/root.ext4 ;;
esac

tries=300
until "mount_$from"; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || stop "INACCESSIBLE BOOT DEVICE: nothing of it on any $from"
    usleep 100000
done

losetup -r /dev/loop0 "$image" || stop "no loop device"
mount -t ext2 -o ro /dev/loop0 /lower || mount -t ext4 -o ro /dev/loop0 /lower || stop "no root"
mount -t tmpfs tmpfs /upper
mkdir /upper/changes /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/changes,workdir=/upper/work overlay /root ||
    stop "no overlay"
cp -r /programs /root/
cp -r /modules /root/programs/
for folder in dev proc sys; do mount -o move "/$folder" "/root/$folder"; done
case $from in
disk) mount -o move /seed /root/c ;;
*) mount -o move /seed /root/cd ;;
esac
exec chroot /root /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 \
    PYTHONPATH=/programs PYTHONDONTWRITEBYTECODE=1 \
    /usr/bin/python3 -m stand_in.guest.main "$from"
