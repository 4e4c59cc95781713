#!/bin/sh
# tools/hypervisor on a machine without any libvirtd: in namespaces of its own, with directories
# of its own for libvirt. Usage: alone.sh DIRECTORY ROOT
set -eu
directory=$1
root=$2
mount --make-rprivate /
umount --recursive --lazy /sys
mount -t sysfs sysfs /sys
ip link set lo up
for place in lib cache log; do
    mkdir -p "$directory/$place"
    mount --bind "$directory/$place" "/var/$place/libvirt"
done
mkdir "$directory/etc"
cp /etc/libvirt/*.conf "$directory/etc"
mount --bind "$directory/etc" /etc/libvirt
mount -t tmpfs tmpfs /run
cd "$root"

say() {
    echo "== $*"
}
say before
tools/hypervisor status || echo "code $?"
say started
tools/hypervisor start 2>&1
pids=$(cut -d ' ' -f 1 /run/hybridlab-hypervisor/libvirtd /run/hybridlab-hypervisor/virtlogd)
tools/hypervisor status | grep -c 'started by this script'
say again
tools/hypervisor start 2>&1
[ "$pids" = "$(cut -d ' ' -f 1 /run/hybridlab-hypervisor/libvirtd /run/hybridlab-hypervisor/virtlogd)" ]
say killed
kill -9 $(pidof libvirtd)
while pidof -q libvirtd; do sleep 0.1; done
tools/hypervisor start 2>&1
say stopped
tools/hypervisor stop 2>&1
tools/hypervisor stop 2>&1
pidof libvirtd virtlogd tini || echo none
say end
