"""The families of cells, by what is probed; :mod:`lab.scenario.families` finds them."""
