"""kube-proxy's health check of a Service: what a node answers, and how a probe takes it.

Pure. From its source (Kubernetes 1.36, pkg/proxy/healthcheck/service_health.go): whatever is
asked, JSON with the number of the Service's ready backends on the node; status 200 where there
are any, 503 where there are none.
"""

from __future__ import annotations

import json

from lab.providers.netns.netexec import read_answers
from lab.providers.netns.protocol import Reply, WireError

_OK, _UNAVAILABLE = 200, 503
_REASONS = {_OK: b"OK", _UNAVAILABLE: b"Service Unavailable"}


def answer(service: str, local: int) -> bytes:
    """The whole HTTP answer of a node that has so many backends of the Service."""
    status = _OK if local else _UNAVAILABLE
    said = {
        "service": {"namespace": "default", "name": service},
        "localEndpoints": local,
        "serviceProxyHealthy": True,
    }
    body = json.dumps(said, indent=4).encode()
    head = (
        b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n"
        b"X-Load-Balancing-Endpoint-Weight: %d\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    )
    return head % (status, _REASONS[status], local, len(body)) + body


class HealthWeb:
    """One question, as a load balancer asks it."""

    def __init__(self, address: str, port: int) -> None:
        self.body = b""
        head = "GET /healthz HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\n\r\n"
        self.request = head.format(address, port).encode()

    def read(self, received: bytes | bytearray) -> Reply | None:
        """The whole answer; None while it is incomplete."""
        answers = read_answers(bytes(received), 1)
        if answers is None:
            return None
        status, body = answers[0]
        return Reply(status, "", "", body)


def backends(reply: Reply) -> str:
    """How many backends the node says it has.

    Raises
    ------
    WireError
        If it does not, or its status says otherwise.

    """
    try:
        number = int(json.loads(reply.body)["localEndpoints"])
    except (ValueError, KeyError, TypeError):
        raise WireError(f"no health check: {reply.body[:40]!r}") from None
    if reply.status != (_OK if number else _UNAVAILABLE):
        raise WireError(f"status {reply.status} with {number} local backends")
    return str(number)
