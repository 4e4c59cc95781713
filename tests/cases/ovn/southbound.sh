#!/bin/sh
exec ovn-sbctl --no-leader-only --timeout=60 \
  -- init \
  -- set-connection ptcp:6642:10.20.0.10 \
  -- set connection . inactivity_probe=60000 > /dev/null
