"""Services with more than the usual ones have, as a scenario writes them. Frozen data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field, model_validator

from lab.scenario import values
from lab.scenario.reserved import POD_PORT, SECOND_POD_PORT, SERVICE_PORT
from lab.scenario.terms import PROTOCOLS, Policy, Protocol, ServicePort
from lab.scenario.values import Choices, Label, Section, SomeItems

MAX_AFFINITY = 86_400
"""Seconds; the longest that kube-apiserver accepts, one day."""


class Port(Section):
    """One port of a special Service."""

    name: Label = Field(
        default_factory=str,
        description="Its name; a Service with several ports names each.",
        examples=["web"],
    )
    port: int = Field(
        ge=1, le=values.MAX_PORT, description="Port of the Service's address.", examples=[80]
    )
    protocols: Choices[Protocol] = Field(
        default=PROTOCOLS, description="Transport protocols of the port."
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
        description="Its port on every node; left out, the plan chooses one where the Service has "
        "node_port.",
        examples=[30080],
    )


class SpecialService(Section):
    """A Service with more than the usual ones have; each of its behaviours has a family of cells.

    Without backends, it refuses whoever asks.
    """

    name: Label = Field(description="Name of the Service.", examples=["sticky"])
    backends: int = Field(
        default_factory=lambda: 1,
        ge=0,
        description="Number of backend pods, Linux and Windows in turn; left out, 1, or as many as "
        "pods lists.",
    )
    pods: SomeItems[str] = Field(
        default_factory=tuple,
        description="Names of its backend pods (NODE-pN), instead of their number.",
        examples=[["worker1-p1"]],
    )
    ports: SomeItems[Port] = Field(
        default_factory=tuple,
        description="Its ports; left out, port 80 over TCP and UDP.",
        examples=[[{"port": 80}]],
    )
    node_port: bool = Field(default=False, description="Whether each of its ports has a NodePort.")
    headless: bool = Field(
        default=False,
        description="Whether it has no address: its name resolves to its pods' addresses.",
    )
    affinity: int | None = Field(
        default=None,
        ge=1,
        le=MAX_AFFINITY,
        description="Seconds for which a client keeps its backend after its last connection "
        "(sessionAffinity ClientIP); left out, every connection may get another backend.",
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
        description="Whether each node reports on a further port how many local backends it has "
        "(healthCheckNodePort); needs external_traffic local.",
    )

    @model_validator(mode="before")
    @classmethod
    def _count_pods(cls, written: Any) -> Any:
        """Default ``backends`` to the number of named pods."""
        pods = written.get("pods") if isinstance(written, dict) else None
        return {"backends": len(pods), **written} if pods and isinstance(pods, list) else written

    @property
    def serves(self) -> bool:
        """Whether it has an address and backends."""
        return not self.headless and self.backends > 0


def has_own_ports(ports: Sequence[Port | ServicePort]) -> bool:
    """Whether a Service has ports other than the usual one."""
    return len(ports) > 1 or any(
        (port.port, port.target_port, port.protocols) != (SERVICE_PORT, POD_PORT, PROTOCOLS)
        for port in ports
    )
