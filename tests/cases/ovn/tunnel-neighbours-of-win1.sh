#!/bin/sh
set -eu
ovs-appctl --timeout=60 tnl/neigh/aging 3600 > /dev/null
ovs-appctl --timeout=60 tnl/neigh/set br-ex 10.20.0.1 0a:58:0a:14:00:01
ovs-appctl --timeout=60 tnl/neigh/set br-ex 10.20.0.10 0a:58:0a:14:00:0a
ovs-appctl --timeout=60 tnl/neigh/set br-ex 10.20.0.11 0a:58:0a:14:00:0b
ovs-appctl --timeout=60 tnl/neigh/set br-ex 10.20.0.12 0a:58:0a:14:00:0c
ovs-appctl --timeout=60 tnl/neigh/set br-ex 10.20.0.14 0a:58:0a:14:00:0e
