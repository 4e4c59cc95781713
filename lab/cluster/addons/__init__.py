"""Network add-ons of clusters: one file each, found by :mod:`lab.cluster.addons.addon`."""
