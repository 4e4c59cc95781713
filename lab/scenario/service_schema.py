"""The shape of a scenario's Services, as pydantic models."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lab.scenario import values
from lab.scenario.reserved import POD_PORT, SECOND_POD_PORT
from lab.scenario.scenario import Policy, Protocol
from lab.scenario.section import Label, Ports, Section

MAX_AFFINITY = 86_400
"""Seconds; the longest that kube-apiserver takes, a day."""


class SharedService(Section):
    """A Service with several backends; each must answer at least once in 64 tries."""

    name: Label = Field(description="Name of the Service.", examples=["everyone"])
    backends: int = Field(ge=2, description="How many pods stand behind it.", examples=[4])


class Port(Section):
    """One port of a special Service."""

    name: Label | None = Field(
        default=None,
        description="Its name; a Service with several ports names each.",
        examples=["web"],
    )
    port: int = Field(
        ge=1, le=values.MAX_PORT, description="Port of the Service's address.", examples=[80]
    )
    protocols: Annotated[list[Protocol], Field(min_length=1)] = Field(
        default=["tcp", "udp"], description="Transport protocols that it is for."
    )
    target_port: int = Field(
        default=POD_PORT,
        ge=1,
        le=values.MAX_PORT,
        description=f"Port of the pods: {POD_PORT} over TCP and UDP, or {SECOND_POD_PORT} over "
        "TCP alone.",
    )
    node_port: int | None = Field(
        default=None,
        ge=1,
        le=values.MAX_PORT,
        description="Its port on every node; left out, the plan gives one where the Service has "
        "node_port.",
        examples=[30080],
    )


class SpecialService(Section):
    """A Service with more than the usual ones have; each of its behaviours has a family of cells.

    Without backends, it refuses whoever asks.
    """

    name: Label = Field(description="Name of the Service.", examples=["sticky"])
    backends: int | None = Field(
        default=None,
        ge=0,
        description="How many pods stand behind it, Linux and Windows in turn; left out, 1, or "
        "those in pods.",
    )
    pods: Annotated[list[str], Field(min_length=1)] | None = Field(
        default=None,
        description="Names of the pods behind it (NODE-pN), instead of their number.",
        examples=[["worker1-p1"]],
    )
    ports: Annotated[list[Port], Field(min_length=1)] | None = Field(
        default=None,
        description="Its ports; left out, port 80 over TCP and UDP.",
        examples=[[{"port": 80}]],
    )
    node_port: bool = Field(
        default=False, description="Whether its ports have one each on every node."
    )
    headless: bool = Field(
        default=False,
        description="Whether it has no address of its own: its name stands for its pods'.",
    )
    affinity: int | None = Field(
        default=None,
        ge=1,
        le=MAX_AFFINITY,
        description="Seconds for which a client keeps its backend after its last connection "
        "(sessionAffinity ClientIP); left out, every connection draws anew.",
        examples=[10_800],
    )
    internal_traffic: Policy = Field(
        default="cluster",
        description="Backends of packets to its address: all of them, or the node's own "
        "(internalTrafficPolicy).",
    )
    external_traffic: Policy = Field(
        default="cluster",
        description="Backends of packets to its port on a node: all of them, or the node's own, "
        "with the source address kept (externalTrafficPolicy).",
    )
    health_check: bool = Field(
        default=False,
        description="Whether each node says on a further port whether it has backends of it "
        "(healthCheckNodePort); with external_traffic local.",
    )


class Services(Section):
    """Services beyond the one that every probe pod has."""

    node_ports: Ports = Field(
        default=(30000, 32767), description="Range of NodePorts, FIRST-LAST, both usable."
    )
    shared: list[SharedService] = Field(default=[], description="Services with several backends.")
    special: list[SpecialService] = Field(
        default=[], description="Services with more than the usual ones have."
    )
