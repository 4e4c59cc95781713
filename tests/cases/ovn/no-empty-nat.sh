#!/bin/sh
# Open vSwitch 3.1 ends itself (conn_update_state in lib/conntrack.c) when a connection's ports are
# used again soon after it was committed with an address of zeros to translate to. It is told to
# OVN as a thing that this data path cannot do.
set -eu
found=$(ovs-vsctl --no-wait --timeout=60 get Open_vSwitch . datapaths:netdev)
exec ovs-vsctl --no-wait --timeout=60 \
  -- wait-until Datapath "$found" capabilities:recirc=true \
  -- set Datapath "$found" capabilities:ct_zero_snat=false
