#!/bin/sh
# Scenario 'test': the network as commands; run as root.
# To remove it: for name in fabric worker1 worker1-p1 win1 win1-p1 router client; do ip netns delete $name; done
set -eu
for name in fabric worker1 worker1-p1 win1 win1-p1 router client; do ip netns add $name; done

# fabric
[ ! -e /proc/sys/net/ipv6/conf/all/disable_ipv6 ] || ip netns exec fabric sysctl -qw net/ipv6/conf/all/disable_ipv6=1
[ ! -e /proc/sys/net/ipv6/conf/default/disable_ipv6 ] || ip netns exec fabric sysctl -qw net/ipv6/conf/default/disable_ipv6=1
[ ! -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || ip netns exec fabric sysctl -qw net/bridge/bridge-nf-call-iptables=0
ip -n fabric link set dev lo up
ip -n fabric link add dev cluster index 2 address 0e:00:00:00:00:02 up type bridge
ip -n fabric link set dev cluster mtu 1500
ip -n fabric link add dev outside index 3 address 0e:00:00:00:00:03 up type bridge
ip -n fabric link set dev outside mtu 1500
ip -n fabric link add dev p4 index 4 address 0e:00:00:00:00:04 mtu 1500 up type veth peer name eth0 index 5 address 0a:58:0a:09:b0:01 mtu 1500 netns worker1
ip -n fabric link set dev p4 master cluster
ip -n fabric link add dev p6 index 6 address 0e:00:00:00:00:06 mtu 1500 up type veth peer name eth0 index 7 address 0a:58:0a:09:b0:02 mtu 1500 netns win1
ip -n fabric link set dev p6 master cluster
ip -n fabric link add dev p8 index 8 address 0e:00:00:00:00:08 mtu 1500 up type veth peer name eth0 index 9 address 0a:58:0a:09:b0:fe mtu 1500 netns router
ip -n fabric link set dev p8 master cluster
ip -n fabric link add dev p10 index 10 address 0e:00:00:00:00:0a mtu 1500 up type veth peer name eth1 index 11 address 0a:58:c0:00:02:01 mtu 1500 netns router
ip -n fabric link set dev p10 master outside
ip -n fabric link add dev p12 index 12 address 0e:00:00:00:00:0c mtu 1500 up type veth peer name eth0 index 13 address 0a:58:c0:00:02:0a mtu 1500 netns client
ip -n fabric link set dev p12 master outside

# worker1
[ ! -e /proc/sys/net/ipv6/conf/all/disable_ipv6 ] || ip netns exec worker1 sysctl -qw net/ipv6/conf/all/disable_ipv6=1
[ ! -e /proc/sys/net/ipv6/conf/default/disable_ipv6 ] || ip netns exec worker1 sysctl -qw net/ipv6/conf/default/disable_ipv6=1
ip netns exec worker1 sysctl -qw net/ipv4/ip_forward=1
ip netns exec worker1 sysctl -qw net/ipv4/conf/all/accept_redirects=0
ip netns exec worker1 sysctl -qw net/ipv4/conf/default/accept_redirects=0
ip netns exec worker1 sysctl -qw net/ipv4/conf/all/send_redirects=0
ip netns exec worker1 sysctl -qw net/ipv4/conf/default/send_redirects=0
ip netns exec worker1 sysctl -qw net/ipv4/conf/all/rp_filter=0
ip netns exec worker1 sysctl -qw net/ipv4/conf/default/rp_filter=0
ip netns exec worker1 sysctl -qw net/ipv4/icmp_ratemask=0
ip netns exec worker1 sysctl -qw net/bridge/bridge-nf-call-iptables=1
ip -n worker1 link set dev lo up
ip -n worker1 link set dev eth0 up
ip -n worker1 address add 10.9.176.1/24 dev eth0
ip -n worker1 link add dev cni0 index 14 address 0a:58:0a:f4:00:01 up type bridge
ip -n worker1 link set dev cni0 mtu 1500
ip -n worker1 address add 10.244.0.1/24 dev cni0
ip -n worker1 link add dev veth2 index 15 address 0e:00:00:00:00:0f mtu 1500 up type veth peer name eth0 index 16 address 0a:58:0a:f4:00:02 mtu 1500 netns worker1-p1
ip -n worker1 link set dev veth2 master cni0
bridge -n worker1 link set dev veth2 hairpin on
ip -n worker1 route replace default via 10.9.176.254 dev eth0
ip -n worker1 route replace 10.244.1.0/24 via 10.9.176.2 dev eth0
ip -n worker1 neighbour replace 10.9.176.2 lladdr 0a:58:0a:09:b0:02 dev eth0 nud permanent
ip -n worker1 neighbour replace 10.9.176.254 lladdr 0a:58:0a:09:b0:fe dev eth0 nud permanent
ip -n worker1 neighbour replace 10.244.0.2 lladdr 0a:58:0a:f4:00:02 dev cni0 nud permanent
ip -n worker1 ntable change name arp_cache dev eth0 proxy_delay 0
ip -n worker1 neighbour replace proxy 10.244.0.2 dev eth0

# worker1-p1
[ ! -e /proc/sys/net/ipv6/conf/all/disable_ipv6 ] || ip netns exec worker1-p1 sysctl -qw net/ipv6/conf/all/disable_ipv6=1
[ ! -e /proc/sys/net/ipv6/conf/default/disable_ipv6 ] || ip netns exec worker1-p1 sysctl -qw net/ipv6/conf/default/disable_ipv6=1
ip netns exec worker1-p1 sysctl -qw net/ipv4/ip_forward=0
ip netns exec worker1-p1 sysctl -qw net/ipv4/conf/all/accept_redirects=0
ip netns exec worker1-p1 sysctl -qw net/ipv4/conf/default/accept_redirects=0
ip netns exec worker1-p1 sysctl -qw net/ipv4/conf/all/send_redirects=0
ip netns exec worker1-p1 sysctl -qw net/ipv4/conf/default/send_redirects=0
ip netns exec worker1-p1 sysctl -qw net/ipv4/conf/all/rp_filter=0
ip netns exec worker1-p1 sysctl -qw net/ipv4/conf/default/rp_filter=0
ip netns exec worker1-p1 sysctl -qw net/ipv4/icmp_ratemask=0
ip -n worker1-p1 link set dev lo up
ip -n worker1-p1 link set dev eth0 up
ip -n worker1-p1 address add 10.244.0.2/24 dev eth0
ip -n worker1-p1 route replace default via 10.244.0.1 dev eth0
ip -n worker1-p1 neighbour replace 10.244.0.1 lladdr 0a:58:0a:f4:00:01 dev eth0 nud permanent

# win1
[ ! -e /proc/sys/net/ipv6/conf/all/disable_ipv6 ] || ip netns exec win1 sysctl -qw net/ipv6/conf/all/disable_ipv6=1
[ ! -e /proc/sys/net/ipv6/conf/default/disable_ipv6 ] || ip netns exec win1 sysctl -qw net/ipv6/conf/default/disable_ipv6=1
ip netns exec win1 sysctl -qw net/ipv4/ip_forward=1
ip netns exec win1 sysctl -qw net/ipv4/conf/all/accept_redirects=0
ip netns exec win1 sysctl -qw net/ipv4/conf/default/accept_redirects=0
ip netns exec win1 sysctl -qw net/ipv4/conf/all/send_redirects=0
ip netns exec win1 sysctl -qw net/ipv4/conf/default/send_redirects=0
ip netns exec win1 sysctl -qw net/ipv4/conf/all/rp_filter=0
ip netns exec win1 sysctl -qw net/ipv4/conf/default/rp_filter=0
ip netns exec win1 sysctl -qw net/ipv4/icmp_ratemask=0
ip netns exec win1 sysctl -qw net/bridge/bridge-nf-call-iptables=1
ip -n win1 link set dev lo up
ip -n win1 link set dev eth0 up
ip -n win1 address add 10.9.176.2/24 dev eth0
ip -n win1 link add dev cni0 index 17 address 0a:58:0a:f4:01:01 up type bridge
ip -n win1 link set dev cni0 mtu 1500
ip -n win1 address add 10.244.1.1/24 dev cni0
ip -n win1 link add dev veth2 index 18 address 0e:00:00:00:00:12 mtu 1500 up type veth peer name eth0 index 19 address 0a:58:0a:f4:01:02 mtu 1500 netns win1-p1
ip -n win1 link set dev veth2 master cni0
bridge -n win1 link set dev veth2 hairpin on
ip -n win1 route replace default via 10.9.176.254 dev eth0
ip -n win1 route replace 10.244.0.0/24 via 10.9.176.1 dev eth0
ip -n win1 neighbour replace 10.9.176.1 lladdr 0a:58:0a:09:b0:01 dev eth0 nud permanent
ip -n win1 neighbour replace 10.9.176.254 lladdr 0a:58:0a:09:b0:fe dev eth0 nud permanent
ip -n win1 neighbour replace 10.244.1.2 lladdr 0a:58:0a:f4:01:02 dev cni0 nud permanent
ip -n win1 ntable change name arp_cache dev eth0 proxy_delay 0
ip -n win1 neighbour replace proxy 10.244.1.2 dev eth0

# win1-p1
[ ! -e /proc/sys/net/ipv6/conf/all/disable_ipv6 ] || ip netns exec win1-p1 sysctl -qw net/ipv6/conf/all/disable_ipv6=1
[ ! -e /proc/sys/net/ipv6/conf/default/disable_ipv6 ] || ip netns exec win1-p1 sysctl -qw net/ipv6/conf/default/disable_ipv6=1
ip netns exec win1-p1 sysctl -qw net/ipv4/ip_forward=0
ip netns exec win1-p1 sysctl -qw net/ipv4/conf/all/accept_redirects=0
ip netns exec win1-p1 sysctl -qw net/ipv4/conf/default/accept_redirects=0
ip netns exec win1-p1 sysctl -qw net/ipv4/conf/all/send_redirects=0
ip netns exec win1-p1 sysctl -qw net/ipv4/conf/default/send_redirects=0
ip netns exec win1-p1 sysctl -qw net/ipv4/conf/all/rp_filter=0
ip netns exec win1-p1 sysctl -qw net/ipv4/conf/default/rp_filter=0
ip netns exec win1-p1 sysctl -qw net/ipv4/icmp_ratemask=0
ip -n win1-p1 link set dev lo up
ip -n win1-p1 link set dev eth0 up
ip -n win1-p1 address add 10.244.1.2/24 dev eth0
ip -n win1-p1 route replace default via 10.244.1.1 dev eth0
ip -n win1-p1 neighbour replace 10.244.1.1 lladdr 0a:58:0a:f4:01:01 dev eth0 nud permanent

# router
[ ! -e /proc/sys/net/ipv6/conf/all/disable_ipv6 ] || ip netns exec router sysctl -qw net/ipv6/conf/all/disable_ipv6=1
[ ! -e /proc/sys/net/ipv6/conf/default/disable_ipv6 ] || ip netns exec router sysctl -qw net/ipv6/conf/default/disable_ipv6=1
ip netns exec router sysctl -qw net/ipv4/ip_forward=1
ip netns exec router sysctl -qw net/ipv4/conf/all/accept_redirects=0
ip netns exec router sysctl -qw net/ipv4/conf/default/accept_redirects=0
ip netns exec router sysctl -qw net/ipv4/conf/all/send_redirects=0
ip netns exec router sysctl -qw net/ipv4/conf/default/send_redirects=0
ip netns exec router sysctl -qw net/ipv4/conf/all/rp_filter=0
ip netns exec router sysctl -qw net/ipv4/conf/default/rp_filter=0
ip netns exec router sysctl -qw net/ipv4/icmp_ratemask=0
ip -n router link set dev lo up
ip -n router link set dev eth0 up
ip -n router address add 10.9.176.254/24 dev eth0
ip -n router link set dev eth1 up
ip -n router address add 192.0.2.1/24 dev eth1
ip -n router route replace 10.244.0.0/24 via 10.9.176.1 dev eth0
ip -n router route replace 10.244.1.0/24 via 10.9.176.2 dev eth0
ip -n router neighbour replace 10.9.176.1 lladdr 0a:58:0a:09:b0:01 dev eth0 nud permanent
ip -n router neighbour replace 10.9.176.2 lladdr 0a:58:0a:09:b0:02 dev eth0 nud permanent
ip -n router neighbour replace 192.0.2.10 lladdr 0a:58:c0:00:02:0a dev eth1 nud permanent

# client
[ ! -e /proc/sys/net/ipv6/conf/all/disable_ipv6 ] || ip netns exec client sysctl -qw net/ipv6/conf/all/disable_ipv6=1
[ ! -e /proc/sys/net/ipv6/conf/default/disable_ipv6 ] || ip netns exec client sysctl -qw net/ipv6/conf/default/disable_ipv6=1
ip netns exec client sysctl -qw net/ipv4/ip_forward=0
ip netns exec client sysctl -qw net/ipv4/conf/all/accept_redirects=0
ip netns exec client sysctl -qw net/ipv4/conf/default/accept_redirects=0
ip netns exec client sysctl -qw net/ipv4/conf/all/send_redirects=0
ip netns exec client sysctl -qw net/ipv4/conf/default/send_redirects=0
ip netns exec client sysctl -qw net/ipv4/conf/all/rp_filter=0
ip netns exec client sysctl -qw net/ipv4/conf/default/rp_filter=0
ip netns exec client sysctl -qw net/ipv4/icmp_ratemask=0
ip -n client link set dev lo up
ip -n client link set dev eth0 up
ip -n client address add 192.0.2.10/24 dev eth0
ip -n client route replace default via 192.0.2.1 dev eth0
ip -n client neighbour replace 192.0.2.1 lladdr 0a:58:c0:00:02:01 dev eth0 nud permanent
