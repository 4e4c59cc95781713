"""How a cluster gets that topology's network: by the standard CNI plugins, without daemons."""

from lab.machines.addons.bridges import Bridges


class ExampleBridges(Bridges):
    """A bridge on each node."""

    topologies = frozenset({"example-routed"})


ADDON = ExampleBridges()
