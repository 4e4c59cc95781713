"""The kinds of topologies, one file each: :mod:`lab.topology.registry` finds them."""
