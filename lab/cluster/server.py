"""An API server through the ``kubernetes`` client: one request, and what it comes to.

One that does not answer raises :class:`LostError`, which ``patiently`` and the waits of
:mod:`lab.cluster.waiting` bear until their deadline; one that refuses raises
:class:`RefusedError` at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab._errors import BrokenError
from lab.cluster.patience import make_patient

if TYPE_CHECKING:
    from kubernetes import client

Object = dict[str, Any]
Query = Mapping[str, str]

_BUSY = frozenset({429, 500, 502, 503, 504})
"""Of a server that starts, ends, or has lost its etcd."""


class LostError(BrokenError):
    """The API server does not answer, or not now."""

    def __repr__(self) -> str:
        return self.happened


class RefusedError(BrokenError):
    """The API server says no; ``code`` is HTTP's."""

    def __init__(self, doing: str, happened: str, cure: str = "", *, code: int = 0) -> None:
        self.code = code
        super().__init__(doing, happened, cure)


class GoneError(Exception):
    """A watch's place in history is too old: list again."""


class Server:
    """One API server.

    Parameters
    ----------
    kubeconfig
        The file; its current context is used.
    server
        Where the server is reached instead (``https://127.0.0.1:40123``, a forwarded port). Its
        certificate must still be that of the server in the file.

    """

    def __init__(self, kubeconfig: Path, server: str | None = None) -> None:
        self._kubeconfig = kubeconfig
        self._server = server

    @cached_property
    def client(self) -> client.ApiClient:
        """The client, whose answers end in time."""
        from urllib.parse import urlsplit  # noqa: PLC0415  with what needs it

        from kubernetes import client, config  # noqa: PLC0415  slow, and an extra

        made = client.Configuration()
        try:
            config.load_kube_config(str(self._kubeconfig), client_configuration=made)
        except config.ConfigException as error:
            raise BrokenError(
                f"reading the kubeconfig '{self._kubeconfig}'", str(error), "'lab up' again"
            ) from None
        if self._server:
            made.tls_server_name = made.tls_server_name or urlsplit(made.host).hostname
            made.host = self._server
        made.retries = False  # ours is the patience
        made.proxy = None  # it is the lab's own network
        connected = client.ApiClient(made)
        make_patient(connected)
        return connected

    @property
    def address(self) -> str:
        """Where it is reached, for messages."""
        return str(self.client.configuration.host)

    def close(self) -> None:
        """Give the connections up."""
        if "client" in self.__dict__:
            self.client.rest_client.close()
            del self.__dict__["client"]

    def send(  # noqa: PLR0913, PLR0917  what a request is made of
        self,
        method: str,
        path: str,
        doing: str,
        timeouts: tuple[float, float],
        body: Object | None,
        query: Query | None,
    ) -> Any:
        """The raw answer, its body not yet read."""
        from kubernetes.client.exceptions import ApiException  # noqa: PLC0415  slow, and an extra
        from urllib3.exceptions import HTTPError  # noqa: PLC0415  the same

        if not timeouts[0]:
            raise self.lost(doing, "the time for it was over before it was asked")
        request = self.client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": "application/json"},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            return self.client.call_api(*request, _request_timeout=timeouts).response
        except (HTTPError, OSError, ApiException) as error:
            raise self.lost(doing, story(error)) from None

    def lost(self, doing: str, happened: str) -> LostError:
        """The error for a server that does not answer."""
        return LostError(doing, happened, "see that the control plane runs: 'lab status'")

    def refusal(self, doing: str, code: int, answer: Mapping[str, Any]) -> BrokenError:
        """The error for an answer that is no success."""
        said = str(answer.get("message") or answer.get("reason") or f"HTTP status {code}")
        if code in _BUSY:
            return self.lost(doing, f"status {code}: {said}")
        return RefusedError(doing, said, code=code)


def lines(response: Any) -> Iterator[bytes]:
    """What an answer that goes on says, line by line."""
    rest = b""
    for chunk in response.stream(65_536, decode_content=True):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line for line in lines if line)


def decoded(text: bytes) -> Object:
    """An object; whatever else is said becomes the message of one."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"message": text.decode(errors="replace").strip()}


def story(error: BaseException) -> str:
    """What happened, without the objects that urllib3 speaks of."""
    from urllib3.exceptions import TimeoutError as NoAnswer  # noqa: PLC0415  slow, an extra

    cause = error.__cause__ or error.__context__ or getattr(error, "reason", None)
    inner = cause if isinstance(cause, OSError) and cause.strerror else error
    if isinstance(inner, OSError) and inner.strerror:
        return f"{inner.strerror.lower()}"
    if isinstance(error, NoAnswer):
        return "no answer in time"
    text = str(error).rpartition(">: ")[2].strip() or type(error).__name__
    return f"{type(error).__name__}: {text}"
