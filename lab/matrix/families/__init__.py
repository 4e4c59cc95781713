"""The families of cells, one file each, which :mod:`lab.scenario.families` finds."""
