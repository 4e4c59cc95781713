#!/bin/sh
# A hypervisor's own computer, as far as namespaces make one: started as process 2 of fresh
# network, mount, UTS, IPC and process namespaces, it ends with libvirtd.
# Usage: hypervisor.sh DIRECTORY NAME
set -eu
directory=$1
name=$2

mount --make-rprivate /
hostname "$name"
# The devices in /sys are those of the network namespace that mounted it. Without cgroups
# libvirt makes do; with those of the whole machine, its groups could meet another libvirtd's.
umount --recursive --lazy /sys
mount -t sysfs sysfs /sys
ip link set lo up
for place in lib cache log; do
    mkdir -p "/var/$place/libvirt"
    mount --bind "$directory/$place" "/var/$place/libvirt"
done
mount --bind "$directory/etc" /etc/libvirt
# libvirtd asks for its own name at every start of a guest, and waits for a server that is not there.
printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$name" > "$directory/hosts"
mount --bind "$directory/hosts" /etc/hosts
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd /run/lock
cp -r "$directory/ssh" /run/hypervisor
mount -t tmpfs -o mode=700 tmpfs /root
# What the lab's own computer keeps in temporary files, another computer does not see.
mount -t tmpfs -o mode=1777 tmpfs /tmp
cd /

/usr/sbin/sshd -f /run/hypervisor/sshd_config
virtlogd --daemon
# One that is killed is started again, as systemd does; one that cannot start ends all of it.
while code=0; libvirtd || code=$?; [ "$code" -gt 128 ]; do :; done
exit "$code"
