#!/bin/sh
exec ovs-vsctl --no-wait --timeout=60 \
  -- init \
  -- --id=@datapath create Datapath external_ids:made-by=hybridlab \
  -- set Open_vSwitch . 'external_ids:system-id="worker1"' 'external_ids:hostname="worker1"' 'external_ids:ovn-remote="tcp:10.20.0.10:6642"' 'external_ids:ovn-remote-probe-interval="60000"' 'external_ids:ovn-openflow-probe-interval="60"' 'external_ids:ovn-encap-type="geneve"' 'external_ids:ovn-encap-ip="10.20.0.11"' 'external_ids:ovn-bridge="br-int"' 'external_ids:ovn-bridge-datapath-type="netdev"' 'external_ids:ovn-monitor-all="true"' datapaths:netdev=@datapath \
  -- add-br br-ex \
  -- set Bridge br-ex datapath_type=netdev fail_mode=standalone 'other_config:hwaddr="0a:58:0a:14:00:0b"' \
  -- add-port br-ex eth0 \
  -- add-br br-int \
  -- set Bridge br-int datapath_type=netdev fail_mode=secure other_config:disable-in-band=true \
  -- add-port br-int ovn-k8s-mp0 \
  -- set Interface ovn-k8s-mp0 type=internal 'mac="0a:58:0a:00:02:02"' mtu_request=1442 'external_ids:iface-id="k8s-worker1"' \
  -- add-port br-int veth1 \
  -- set Interface veth1 'external_ids:iface-id="worker1-p1"' \
  -- add-port br-int veth2 \
  -- set Interface veth2 'external_ids:iface-id="worker1-p2"' > /dev/null
