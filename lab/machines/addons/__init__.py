"""Network add-ons of clusters: one file each, found by :mod:`lab.machines.addons.addon`."""
