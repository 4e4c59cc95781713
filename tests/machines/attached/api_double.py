"""An API server of objects in memory, whose pods run at once, and kubeconfigs for it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from attached_clusters import kubeadm_cluster

from lab.machines.attached.recognise import READS

Object = dict[str, Any]
_NAMES = ("nodes", "daemonsets", "services", "endpointslices", "servicecidrs", "ippools", "pods")
_KINDS = (*_NAMES, "namespaces", "serviceaccounts", "events", "resourcequotas", "networkpolicies")
_CORE = "/api/v1/namespaces"
_SLICES = "/apis/discovery.k8s.io/v1/namespaces"


class ApiDouble(ThreadingHTTPServer):
    """A cluster of a control plane and a worker.

    ``objects``: by path. ``refused``: methods and ends of paths that are answered by that status.
    ``missing_rights``: verbs and resources that the user does not have. ``token``: the only valid
    one, if it asks for any. ``deaf``: set when it is to answer
    no more; ``dies_at``: the request, as method and end of its path, with which that begins.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, Object] = {}
        self.refused: dict[tuple[str, str], int] = {}
        self.missing_rights: set[tuple[str, str]] = set()
        self.token: str | None = None
        self.version = "v1.36.3"
        self.dies_at: tuple[str, str] | None = None
        self.deaf = False
        self.asked: list[tuple[str, str]] = []
        self.lock = threading.RLock()
        self._numbers = count(1)
        for name, path in READS.items():
            items = kubeadm_cluster()[name].objects
            if path.rpartition("/")[2] in _KINDS:
                for item in items:
                    self._put_listed(path, item)
            elif items:
                self.objects[path] = dict(items[0])

    def _put_listed(self, path: str, item: Object) -> None:
        base, _, kind = path.rpartition("/")
        space = item["metadata"].get("namespace")
        place = f"{base}/namespaces/{space}/{kind}" if space else path
        self.objects[f"{place}/{item['metadata']['name']}"] = item

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, path: str, **labels: str) -> Object:
        """Put somebody's object there."""
        name = path.rpartition("/")[2]
        made: Object = {"metadata": {"name": name, "uid": f"theirs-{name}", "labels": labels}}
        self.objects[path] = made
        return made

    def names(self, kind: str) -> set[str]:
        """The objects of a kind that labs have made or left: all but those of the cluster."""
        return {
            path.removeprefix(f"{_CORE}/")
            for path in self.objects
            if f"/{kind}/" in path and not path.startswith(f"{_CORE}/kube-system/")
        }

    def create(self, path: str, body: Object) -> Object:
        """What an API server, its controllers and kubelets make of an object."""
        kind, number = path.rpartition("/")[2], next(self._numbers)
        name = body["metadata"]["name"]
        body["metadata"] |= {"uid": str(number), "resourceVersion": "1"}
        self.objects[f"{path}/{name}"] = body
        if kind == "namespaces":
            account = f"{path}/{name}/serviceaccounts/default"
            self.objects[account] = {"metadata": {"name": "default"}}
        elif kind == "pods":
            affinity = body["spec"]["affinity"]["nodeAffinity"]
            terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            body["spec"]["nodeName"] = terms[0]["matchFields"][0]["values"][0]
            conditions = [{"type": "PodScheduled", "status": "True"}]
            conditions.append({"type": "Ready", "status": "True"})
            address = f"10.244.9.{number}"
            body["status"] = {"phase": "Running", "podIP": address, "conditions": conditions}
        elif kind == "services":
            body["spec"]["clusterIP"] = f"10.96.9.{number}"
            for offset, port in enumerate(body["spec"].get("ports") or ()):
                port["nodePort"] = 30000 + 10 * number + offset
        self._fill_slices()
        return body

    def _fill_slices(self) -> None:
        """The EndpointSlices that the Services' selectors give."""
        for path, service in [*self.objects.items()]:
            space, kind, name = path.removeprefix(f"{_CORE}/").split("/")[:3] if path.startswith(
                f"{_CORE}/"
            ) and path.count("/") > 5 else ("", "", "")  # fmt: skip
            selector = (service.get("spec") or {}).get("selector")
            if kind != "services" or not selector:
                continue
            pods = {
                each["metadata"]["name"]: each["status"]["podIP"]
                for at, each in self.objects.items()
                if at.startswith(f"{_CORE}/{space}/pods/")
                and selector.items() <= (each["metadata"].get("labels") or {}).items()
            }
            self.objects[f"{_SLICES}/{space}/endpointslices/{name}"] = {
                "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
                "endpoints": [
                    {"addresses": [address], "targetRef": {"kind": "Pod", "name": pod},
                     "conditions": {"ready": True}}
                    for pod, address in pods.items()
                ],
            }  # fmt: skip

    def delete(self, path: str) -> None:
        """Remove an object and what is in it, or follows from it."""
        self.objects.pop(path.replace(_CORE, _SLICES).replace("/services/", "/endpointslices/"), 0)
        for other in [*self.objects]:
            beneath = other.startswith(f"{path.replace(_CORE, _SLICES)}/")
            if other == path or other.startswith(f"{path}/") or beneath:
                del self.objects[other]

    def listed(self, path: str, selector: str) -> list[Object]:
        """The objects of a path, in one namespace or in all, with a label or a name."""
        base, _, kind = path.rpartition("/")
        key, _, value = selector.partition("=")
        matching = []
        for own, item in self.objects.items():
            place = own.rpartition("/")[0]
            inside = place.startswith(f"{base}/namespaces/") and place.endswith(f"/{kind}")
            if place != path and not (inside and "/namespaces/" not in path):
                continue
            labels = (item["metadata"].get("labels") or {}) | {
                "metadata.name": item["metadata"]["name"]
            }
            if not key or labels.get(key) == value:
                matching.append(item)
        return matching


class _Handler(BaseHTTPRequestHandler):
    server: ApiDouble
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        with self.server.lock:
            self._answer()

    do_POST = do_DELETE = do_GET  # noqa: N815  the base class's names

    def _answer(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        path, method = url.path, self.command
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        server = self.server
        server.asked.append((method, path))
        if server.dies_at and method == server.dies_at[0] and path.endswith(server.dies_at[1]):
            server.deaf = True
        if server.deaf:
            self.close_connection = True
            return
        if server.token and self.headers.get("Authorization") != f"Bearer {server.token}":
            self._fail(401, "Unauthorized")
            return
        for (verb, end), code in server.refused.items():
            if method == verb and path.endswith(end):
                self._fail(code, f"user cannot {verb} {end}")
                return
        self._serve(method, path, query, body)

    def _serve(self, method: str, path: str, query: Mapping[str, str], body: Object) -> None:
        server, name = self.server, path.rpartition("/")[2]
        if path == "/version":
            self._send({"gitVersion": server.version} if server.version else {})
        elif method == "POST":
            self._post(path, query, body)
        elif name in _KINDS and query.get("watch"):
            self._send_bytes(b"")
        elif name in _KINDS:
            selector = query.get("labelSelector") or query.get("fieldSelector", "")
            items = server.listed(path, selector)
            self._send({"metadata": {"resourceVersion": "1"}, "items": items})
        elif path not in server.objects:
            self._fail(404, "not found")
        elif method == "GET":
            self._send(server.objects[path])
        else:
            self._delete(path, (body.get("preconditions") or {}).get("uid"))

    def _delete(self, path: str, uid: str | None) -> None:
        if uid in {None, self.server.objects[path]["metadata"].get("uid")}:
            self.server.delete(path)
            self._send({})
        else:
            self._fail(409, "another uid")

    def _post(self, path: str, query: Mapping[str, str], body: Object) -> None:
        server = self.server
        if path.endswith("/selfsubjectaccessreviews"):
            right = body["spec"]["resourceAttributes"]
            lacks = (right["verb"], right["resource"]) in server.missing_rights
            self._send({"status": {"allowed": not lacks}}, 201)
        elif query.get("dryRun"):
            self._fail(422, "the range of valid IPs is 10.96.0.0/12")
        elif f"{path}/{body['metadata']['name']}" in server.objects:
            self._fail(409, "already exists")
        else:
            self._send(server.create(path, body), 201)

    def _fail(self, code: int, message: str) -> None:
        self._send({"kind": "Status", "code": code, "message": message}, code)

    def _send(self, document: Object, code: int = 200) -> None:
        self._send_bytes(json.dumps(document).encode(), code)

    def _send_bytes(self, content: bytes, code: int = 200) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served() -> Iterator[ApiDouble]:
    """A double that serves for the block."""
    double = ApiDouble()
    thread = threading.Thread(target=double.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield double
    finally:
        double.shutdown()
        double.server_close()
        thread.join()


def write_kubeconfig(path: Path, server: str, **user: Any) -> Path:
    """A kubeconfig whose one context has the name that kubeadm gives it."""
    name = "kubernetes-admin@kubernetes"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": "it", "user": "me"}}],
        "clusters": [{"name": "it", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": user}],
    }
    path.write_text(json.dumps(document))
    return path
