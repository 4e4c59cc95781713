#!/bin/busybox sh
# Takes the address that udhcpc was given.
case "$1" in bound|renew)
    /bin/busybox ip address flush dev "$interface"
    /bin/busybox ip address add "$ip/$mask" dev "$interface"
    [ -z "$router" ] || /bin/busybox ip route replace default via "${router%% *}" dev "$interface"
;; esac
