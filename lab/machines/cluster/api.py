"""Reads, watches, creates and removes objects through a cluster's API.

Python's own timeouts apply to each piece of an answer, so a server or proxy that sends one byte
now and then would be waited for without end; here a timeout covers the whole answer.

A server that does not answer raises :class:`LostError`, which ``patiently`` and :func:`wait_for`
tolerate until their deadline; one that refuses raises :class:`RefusedError` at once.
"""

from __future__ import annotations

import http.client
import io
import json
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.machines.cluster import pod_exec
from lab.shells.shell import UnreachableError
from lab.topology.observed import TOKEN

if TYPE_CHECKING:
    from kubernetes import client

T = TypeVar("T")
Object = dict[str, Any]
Objects = Mapping[str, Object]
Query = Mapping[str, str]
Missing = Callable[[Objects], str]
"""Takes the objects by name and returns what is still missing, or an empty text."""

NODES = "/api/v1/nodes"
JSON, MERGE, APPLY = (
    "application/json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
_CALL_SECONDS = 15.0
"""Upper limit of one request; callers that need longer ask again."""
_WATCH_SECONDS = 10
"""The server ends a watch after this time; a watch that stays silent for longer is lost."""
_AGAIN_SECONDS = 0.25
_GONE, _NOT_FOUND, _CONFLICT, _INVALID = 410, 404, 409, 422
_BUSY = frozenset({429, 500, 502, 503, 504})
"""Status codes of a server that is starting, stopping, or has lost its etcd."""
_PLANE_HINT = "check that the control plane runs: 'lab status'"
_NODE_HINT = "check that the node's kubelet runs: 'lab status'"


class LostError(BrokenError):
    """The API server does not answer at the moment; ``code``: the HTTP status if it is busy."""

    def __init__(self, action: str, happened: str, hint: str = "", *, code: int = 0) -> None:
        self.code = code
        super().__init__(action, happened, hint)


class RefusedError(BrokenError):
    """The API server refuses a request; ``code`` is the HTTP status."""

    def __init__(self, action: str, happened: str, hint: str = "", *, code: int = 0) -> None:
        self.code = code
        super().__init__(action, happened, hint)


class ForeignError(RefusedError):
    """An object of that name exists, and is not the lab's."""


class GoneError(Exception):
    """A watch's resource version is too old: list again."""


@dataclass(frozen=True, slots=True)
class ObjectList:
    """Objects by name, and the resource version of the list."""

    version: str
    objects: dict[str, Object]


class Api:
    """One API server.

    ``kubeconfig``: the file; its current context is used. ``server``: another address to reach the
    server at (``https://127.0.0.1:40123``, a forwarded port). Its certificate must still be that of
    the server in the file. ``configuration``: instead of the file, for an existing
    cluster; its proxy is used.
    """

    def __init__(
        self,
        kubeconfig: Path,
        server: str | None = None,
        configuration: client.Configuration | None = None,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._server = server
        self._configuration = configuration
        self._resources: dict[str, Object] = {}

    @property
    def server(self) -> str:
        """The server's address, for messages."""
        return str(self.client.configuration.host)

    def close(self) -> None:
        """Close the connections."""
        if "client" in self.__dict__:
            self.client.rest_client.close()
            del self.__dict__["client"]

    @cached_property
    def client(self) -> client.ApiClient:
        """The client; its answers have a timeout."""
        from kubernetes import client, config  # noqa: PLC0415  slow, and an extra

        made = self._configuration or client.Configuration()
        try:
            if self._configuration is None:
                config.load_kube_config(str(self._kubeconfig), client_configuration=made)
        except config.ConfigException as error:
            raise BrokenError(
                f"reading the kubeconfig '{self._kubeconfig}'", str(error), "run 'lab up' again"
            ) from None
        if self._server:
            made.tls_server_name = made.tls_server_name or urlsplit(made.host).hostname
            made.host = self._server
        made.retries = False  # retries are this class's business
        if self._configuration is None:
            made.proxy = None  # the lab's own network needs none
        connected = client.ApiClient(made)
        connected.rest_client.pool_manager.pool_classes_by_scheme = _timed_pools()
        return connected

    def ask(  # noqa: PLR0913  what a request is made of
        self,
        method: str,
        path: str,
        deadline: Deadline,
        body: Object | None = None,
        query: Query | None = None,
        *,
        content: str = JSON,
    ) -> Object:
        """Send one request and return the answer as an object.

        Raises LostError when the server does not answer; RefusedError when it refuses.
        """
        return _decode_answer(self._read(method, path, deadline, body, query, content))

    def text(self, path: str, deadline: Deadline, query: Query | None = None) -> str:
        """An answer that is no object, such as a log. Raises as :meth:`ask`."""
        return self._read("GET", path, deadline, None, query, JSON).decode(errors="replace")

    def _read(  # noqa: PLR0913, PLR0917  what a request is made of
        self,
        method: str,
        path: str,
        deadline: Deadline,
        body: Object | None,
        query: Query | None,
        content: str,
    ) -> bytes:
        action = f"asking the API server at {self.server} to {method} {path}"
        seconds = min(_CALL_SECONDS, deadline.left())
        with self._answer(method, path, action, (seconds, seconds), query, body, content) as answer:
            if answer.status >= 300:  # noqa: PLR2004  not a success
                raise _refusal(action, answer.status, _decode_answer(answer.data))
            return bytes(answer.data)

    @contextmanager
    def _answer(  # noqa: PLR0913, PLR0917  what a request is made of
        self,
        method: str,
        path: str,
        action: str,
        timeouts: tuple[float, float],
        query: Query | None,
        body: Object | None = None,
        content: str = JSON,
    ) -> Iterator[Any]:
        """The answer with its body unread; ``timeouts``: to connect, and for the whole answer."""
        from kubernetes.client.exceptions import ApiException  # noqa: PLC0415  slow, and an extra
        from urllib3.exceptions import HTTPError  # noqa: PLC0415  the same

        if not timeouts[0]:
            raise LostError(
                action, "the deadline had passed before the request was sent", _PLANE_HINT
            )
        request = self.client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": JSON, "Content-Type": content},
            body=json.dumps(body) if content == APPLY else body,
            auth_settings=["BearerToken"],
        )
        token = _ends.set(time.monotonic() + timeouts[1])
        try:
            try:
                answer = self.client.call_api(*request, _request_timeout=timeouts).response
            finally:
                _ends.reset(token)
            with closing(answer):
                yield answer
        except (HTTPError, OSError, ApiException) as error:
            raise LostError(action, _story(error), _PLANE_HINT) from None

    def find(self, path: str, deadline: Deadline) -> Object | None:
        """One object, or None. Raises as :meth:`ask`."""
        try:
            return self.ask("GET", path, deadline)
        except RefusedError as error:
            if error.code == _NOT_FOUND:
                return None
            raise

    def listing(self, path: str, deadline: Deadline, query: Query | None = None) -> ObjectList:
        """Every object under a path, by name. Raises as :meth:`ask`."""
        answer = self.ask("GET", path, deadline, query=query)
        kind = str(answer.get("kind", "List")).removesuffix("List")
        try:
            objects = {
                item["metadata"]["name"]: {"kind": kind, **item}
                for item in answer.get("items") or ()
            }
            return ObjectList(str(answer["metadata"]["resourceVersion"]), objects)
        except (KeyError, TypeError) as error:  # answered by a proxy or load balancer
            action = f"listing {path} of the API server at {self.server}"
            happened = f"the answer is not a list: {json.dumps(answer)[:80]}"
            raise LostError(action, happened, _PLANE_HINT) from error

    def watch(
        self, path: str, version: str, deadline: Deadline, query: Query | None = None
    ) -> Generator[tuple[str, Object], None, None]:
        """Events since ``version``: ``ADDED``, ``MODIFIED`` or ``DELETED``, and the object.

        The server ends a watch after some seconds; a ``BOOKMARK`` carries a newer version. Callers
        that leave the generator early must close it.

        Raises GoneError when ``version`` is too old; LostError when the server does not answer or
        falls silent.
        """
        action = f"watching {path} of the API server at {self.server}"
        seconds = max(1, min(_WATCH_SECONDS, math.ceil(deadline.left())))
        options = {
            **(query or {}),
            "watch": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
            "allowWatchBookmarks": "true",
        }
        timeouts = (min(_CALL_SECONDS, deadline.left()), seconds + 2.0)
        with self._answer("GET", path, action, timeouts, options) as answer:
            if answer.status == _GONE:
                raise GoneError
            if answer.status >= 300:  # noqa: PLR2004  not a success
                raise _refusal(action, answer.status, _decode_answer(answer.data))
            for line in _lines(answer):
                event = _decode_answer(line)
                kind, item = str(event.get("type")), event.get("object") or {}
                if kind == "ERROR":
                    if item.get("code") == _GONE:
                        raise GoneError
                    raise _refusal(action, int(item.get("code", 500)), item)
                if "name" not in (item.get("metadata") or {}) and kind != "BOOKMARK":
                    raise LostError(action, f"it says {json.dumps(event)[:80]}", _PLANE_HINT)
                yield kind, item

    def create_or_replace(
        self, path: str, wanted: Object, deadline: Deadline, *, retry: bool = False
    ) -> None:
        """Create an object; one with the same name and the lab's token is removed first.

        A pod or a Service cannot be changed into another, and its removal takes an instant.
        ``retry``: an earlier call did not see the answer to its request. Until that request has
        been carried out, a Service's address and node port are taken (status 422) though there is
        no such Service yet.

        Raises as :meth:`ask`; ForeignError when an object of that name has another token or none;
        DeadlineError when the existing one is not removed in time.
        """
        own = f"{path}/{wanted['metadata']['name']}"
        unseen = retry

        def make() -> None:
            nonlocal unseen
            try:
                self.ask("POST", path, deadline, wanted)
            except LostError:
                unseen = True
                raise
            except RefusedError as error:
                if error.code not in {_CONFLICT, _INVALID}:
                    raise
                existing = self.find(own, deadline)
                if existing is None and error.code == _INVALID and not unseen:
                    raise
                if existing is not None:
                    if _is_of_this_call(existing, wanted):
                        return
                    if _token(existing) != _token(wanted):
                        raise ForeignError(
                            error.doing, "it exists and is not the lab's", code=_CONFLICT
                        ) from error
                    self.remove(own, deadline, uid=existing["metadata"].get("uid", ""))
                raise LostError(error.doing, error.happened) from error

        self.patiently(f"making {wanted['kind']} '{wanted['metadata']['name']}'", make, deadline)

    def apply(self, wanted: Mapping[str, Any], deadline: Deadline) -> None:
        """Bring an object to this state, whoever else has changed it (server-side apply).

        Waits for a kind or a namespace that does not exist yet.

        Raises DeadlineError with the last answer; RefusedError with the field when the API server
        refuses.
        """
        action = f"applying {wanted['kind']} '{wanted['metadata']['name']}'"
        query = {"fieldManager": "hybridlab", "force": "true"}

        def put() -> None:
            try:
                path = self._path(wanted, deadline)
                self.ask("PATCH", path, deadline, dict(wanted), query, content=APPLY)
            except RefusedError as error:
                if error.code != _NOT_FOUND:
                    raise
                raise LostError(action, error.happened) from error

        self.patiently(action, put, deadline)

    def _path(self, wanted: Mapping[str, Any], deadline: Deadline) -> str:
        """The path of an object; the server knows the plural of its kind."""
        version, kind, metadata = wanted["apiVersion"], wanted["kind"], wanted["metadata"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        known = self._resources.get(base) or self.ask("GET", base, deadline)
        for resource in known["resources"]:
            if resource["kind"] == kind and "/" not in resource["name"]:
                self._resources[base] = known
                place = f"/namespaces/{metadata['namespace']}" if resource["namespaced"] else ""
                return f"{base}{place}/{resource['name']}/{metadata['name']}"
        self._resources.pop(base, None)
        raise LostError(f"looking for kind '{kind}'", f"{version} has no kind '{kind}' yet")

    def remove(self, path: str, deadline: Deadline, *, uid: str = "") -> bool:
        """Request an object's removal, pods without grace, and return whether it existed.

        ``uid``: that of the object that is meant; another one of the same name stays.

        Raises as :meth:`ask`.
        """
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if "/namespaces/" in path:
            body["gracePeriodSeconds"] = 0
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            self.ask("DELETE", path, deadline, body)
        except RefusedError as error:
            if error.code == _NOT_FOUND or (uid and error.code == _CONFLICT):
                return False
            raise
        return True

    def patiently(self, action: str, ask: Callable[[], T], deadline: Deadline) -> T:
        """Repeat ``ask`` while the server does not answer.

        Raises DeadlineError with the last error, which is its cause.
        """
        met: LostError | None = None
        for _ in deadline.tries(every=_AGAIN_SECONDS):
            if met and not deadline.left():
                break  # a request without time says less than the one before it
            try:
                return ask()
            except LostError as error:
                met = error
        assert met is not None, "the first try has failed"
        happened = f"not done within {deadline.seconds:g} s; last seen: {met.happened}"
        raise DeadlineError(action, happened, met.hint) from met

    def execute(  # noqa: PLR0913, PLR0917  an exec's arguments
        self,
        namespace: str,
        pod: str,
        container: str,
        command: Sequence[str],
        deadline: Deadline,
        stdin: bytes = b"",
    ) -> pod_exec.ExecResult:
        """Run a command in a container; its standard input is ``stdin``, then end of file.

        End of file on standard input needs version 5 of the protocol (Kubernetes 1.30 and later).

        Raises LostError when the API server, or the kubelet behind it, does not take the command;
        DeadlineError when it has not ended in time: its connection is closed, its output lost.
        """
        from websocket import (  # noqa: PLC0415  comes with the client, an extra
            WebSocketBadStatusException,
            WebSocketException,
        )

        action = f"running '{command[0]}' in pod '{pod}'"
        place = f"{make_namespaced_path('pods', namespace)}/{pod}"
        try:
            return pod_exec.run(self.client, place, container, command, stdin, deadline)
        except UnreachableError as error:
            happened = error.happened
        except WebSocketBadStatusException as error:
            answer = _decode_answer(error.resp_body or b"")
            happened = _refusal(action, error.status_code, answer).happened
        except (OSError, WebSocketException) as error:
            happened = _story(error)
        if not deadline.left():
            raise DeadlineError(action, f"not done within {deadline.seconds:g} s")
        raise LostError(action, happened, _NODE_HINT)


def _is_of_this_call(existing: Object, wanted: Object) -> bool:
    """Whether the existing object comes from the call that makes ``wanted``: its answer was lost.

    The names are equal; the labels identify the run, and within a run nothing else differs.
    """
    metadata = existing["metadata"]
    if metadata.get("deletionTimestamp"):
        return False
    return bool(metadata.get("labels") == wanted["metadata"].get("labels"))


def _token(resource: Object) -> str | None:
    """The token of the lab that made an object; None if no lab did."""
    return (resource["metadata"].get("labels") or {}).get(TOKEN)


def make_namespaced_path(kind: str, namespace: str) -> str:
    """The path of the objects of a kind in a namespace."""
    groups = {
        "endpointslices": "/apis/discovery.k8s.io/v1",
        "daemonsets": "/apis/apps/v1",
        "networkpolicies": "/apis/networking.k8s.io/v1",
    }
    return f"{groups.get(kind, '/api/v1')}/namespaces/{namespace}/{kind}"


def wait_for(  # noqa: PLR0913  what is waited for, and how
    api: Api,
    path: str,
    missing: Missing,
    action: str,
    deadline: Deadline,
    *,
    query: Query | None = None,
    hint: str = "",
) -> Objects:
    """Watch the objects under a path until nothing is missing, and return them.

    Tolerates an API server that does not answer for a while, or no longer has the watched version.

    Raises DeadlineError with what is missing and the API server's last error; RefusedError when the
    API server refuses.
    """
    lacking, trouble = "the API server has not been asked yet", ""
    # A server that ends each watch at once must not be asked again without a pause.
    for _ in deadline.tries(every=_AGAIN_SECONDS):
        try:
            listed = api.listing(path, deadline, query)
            lacking, trouble = missing(listed.objects), ""
            if lacking:
                lacking = _follow_watch(api, path, listed, missing, lacking, deadline, query)
            if not lacking:
                return listed.objects
        except LostError as error:
            trouble = f"; the API server does not answer: {error.happened}"
    raise DeadlineError(action, f"not done within {deadline.seconds:g} s: {lacking}{trouble}", hint)


def _follow_watch(  # noqa: PLR0913, PLR0917  the state of one watch
    api: Api,
    path: str,
    listed: ObjectList,
    missing: Missing,
    lacking: str,
    deadline: Deadline,
    query: Query | None,
) -> str:
    """Apply events to the objects until nothing is missing or the watch ends."""
    watch = api.watch(path, listed.version, deadline, query)
    with suppress(GoneError), closing(watch):
        for kind, item in watch:
            if kind == "BOOKMARK":
                continue
            name = item["metadata"]["name"]
            if kind == "DELETED":
                listed.objects.pop(name, None)
            else:
                listed.objects[name] = item
            lacking = missing(listed.objects)
            if not lacking or not deadline.left():
                break
    return lacking


_ends: ContextVar[float] = ContextVar("_ends", default=float("inf"))
"""Deadline of the answer being read, on the monotonic clock."""


def _timed_pools() -> dict[str, type[Any]]:
    """Connection pools for urllib3 that apply one deadline to the whole of an answer."""
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool  # noqa: PLC0415  slow, an extra

    made = {}
    for scheme, pool in (("http", HTTPConnectionPool), ("https", HTTPSConnectionPool)):
        plain: Any = pool.ConnectionCls
        timed = type(plain.__name__, (plain,), {"response_class": _TimedResponse})
        made[scheme] = type(pool.__name__, (pool,), {"ConnectionCls": timed})
    return made


class _TimedResponse(http.client.HTTPResponse):
    """An answer with a deadline; reading after it raises TimeoutError."""

    def __init__(self, sock: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_TimedStream(self.fp.detach(), sock, _ends.get()))


class _TimedStream(io.RawIOBase):
    """The raw stream of a connection; each read may take the time that is left."""

    def __init__(self, raw: io.RawIOBase, connection: Any, ends: float) -> None:
        super().__init__()
        self._raw: Any = raw
        self._connection = connection
        self._ends = ends

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        usual = self._connection.gettimeout()
        longest = left if usual is None else min(left, usual)
        self._connection.settimeout(None if math.isinf(longest) else longest)
        try:
            return self._raw.readinto(buffer)  # type: ignore[no-any-return]
        finally:
            self._connection.settimeout(usual)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _refusal(action: str, code: int, answer: Mapping[str, Any]) -> BrokenError:
    """The error for an unsuccessful answer."""
    message = str(answer.get("message") or answer.get("reason") or f"HTTP status {code}")
    if code in _BUSY:
        return LostError(action, f"status {code}: {message}", _PLANE_HINT, code=code)
    return RefusedError(action, message, code=code)


def _lines(response: Any) -> Iterator[bytes]:
    """The lines of a streamed answer."""
    rest = b""
    for chunk in response.stream(65_536, decode_content=True):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line for line in lines if line)


def _decode_answer(text: bytes) -> Object:
    """The answer as an object; anything that is not JSON becomes its ``message``."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    return (
        document
        if isinstance(document, dict)
        else {"message": text.decode(errors="replace").strip()}
    )


def _story(error: BaseException) -> str:
    """What happened, without the Python objects that urllib3 puts into its messages."""
    from urllib3.exceptions import TimeoutError as NoAnswer  # noqa: PLC0415  slow, an extra

    cause = error.__cause__ or error.__context__ or getattr(error, "reason", None)
    inner = cause if isinstance(cause, OSError) and cause.strerror else error
    if isinstance(inner, OSError) and inner.strerror:
        return f"{inner.strerror.lower()}"
    if isinstance(error, NoAnswer):
        return "no answer in time"
    text = str(error).rpartition(">: ")[2].strip() or type(error).__name__
    return f"{type(error).__name__}: {text}"
