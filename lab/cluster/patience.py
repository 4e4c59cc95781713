"""Answers of the API server that end in the time that :func:`within` gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lab.imaging.patience import Answer, within

if TYPE_CHECKING:
    from kubernetes import client

__all__ = ["make_patient", "within"]


def make_patient(connected: client.ApiClient) -> None:
    """Have the requests of a client end in time, whatever comes of them."""
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool  # noqa: PLC0415  slow, an extra

    made = {
        scheme: type(pool.__name__, (pool,), {"ConnectionCls": _patient(pool.ConnectionCls)})
        for scheme, pool in (("http", HTTPConnectionPool), ("https", HTTPSConnectionPool))
    }
    connected.rest_client.pool_manager.pool_classes_by_scheme = made


def _patient(connection: type[Any]) -> type[Any]:
    return type(connection.__name__, (connection,), {"response_class": Answer})
