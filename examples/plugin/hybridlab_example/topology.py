"""A topology: the routes of an upstream router, under another name."""

from dataclasses import replace

from lab.topology.kinds import upstream_tor

TOPOLOGY = replace(
    upstream_tor.TOPOLOGY,
    kind="example-routed",
    title="Example: the router holds a route to every node's pods",
    also=(),
)
