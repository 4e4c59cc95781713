"""A cluster behind an HTTP proxy: requests and commands in pods go through it, as kubectl's do."""

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from api_double import write_kubeconfig
from certificates import Authority
from connect_proxy import connect_proxy
from websockets_by_hand import frame, switched

from lab._deadline import Deadline
from lab._errors import UsageError
from lab.machines.attached.connection import choose_context, opened_api
from lab.machines.cluster.api import LostError

SECONDS = 60.0
NAME = "cluster.example"
"""Of the API server: known to the proxy alone."""


class _Handler(BaseHTTPRequestHandler):
    """An API server that answers every request, and every command with "done"."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if key := self.headers.get("Sec-WebSocket-Key"):
            self.close_connection = True
            end = json.dumps({"status": "Success"}).encode()
            answer = frame(b"\x01done") + frame(b"\x03" + end) + frame(b"\x03\xe8", 8)
            self.wfile.write(switched(key.encode()) + answer)
            return
        content = json.dumps({"gitVersion": "v1.36.3"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path):
    """The API server, and the authority of its certificate."""
    pytest.importorskip("kubernetes")
    authority = Authority(tmp_path)
    pair = authority.sign("server", addresses=("127.0.0.1",))
    api_server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.certificate, pair.key)
    api_server.socket = tls.wrap_socket(api_server.socket, server_side=True)
    thread = threading.Thread(target=api_server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield api_server
    api_server.shutdown()
    api_server.server_close()
    thread.join()


@pytest.fixture
def proxy(server, monkeypatch):
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with connect_proxy(server.server_address) as proxy:
        yield proxy


@pytest.fixture
def address(server, tmp_path):  # noqa: ARG001  its authority's certificate
    """The kubeconfig's context; with more keys of its cluster."""

    def make(host=NAME, port=6443, **cluster):
        path = write_kubeconfig(tmp_path / "a.conf", f"https://{host}:{port}")
        document = json.loads(path.read_text())
        document["clusters"][0]["cluster"] |= {
            "certificate-authority": str(tmp_path / "ca.crt"),
            "tls-server-name": "127.0.0.1",
            **cluster,
        }
        path.write_text(json.dumps(document))
        return choose_context(str(path), None)

    return make


def use(address):
    """Ask for the version, and run a command."""
    with opened_api(address) as api:
        assert api.ask("GET", "/version", Deadline(SECONDS)) == {"gitVersion": "v1.36.3"}
        done = api.execute("x", "pod", "netexec", ["true"], Deadline(SECONDS))
    assert (done.code, done.stdout) == (0, "done")


def test_the_kubeconfig_s_proxy_is_used_with_its_credentials(proxy, address):
    use(address(**{"proxy-url": f"http://me:p%40ss@{proxy.address}"}))
    credentials = f"Basic {base64.b64encode(b'me:p@ss').decode()}"
    assert proxy.tunnels == [(f"{NAME}:6443", credentials)] * 2


def test_the_environment_s_proxy_is_used(proxy, address, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
    use(address())
    assert proxy.tunnels == [(f"{NAME}:6443", None)] * 2


@pytest.mark.parametrize("exempt", ["127.0.0.0/8", ""], ids=["NO_PROXY", "loopback"])
def test_a_server_that_is_exempt_is_asked_directly(server, proxy, address, monkeypatch, exempt):
    monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
    monkeypatch.setenv("NO_PROXY", exempt)
    use(address("127.0.0.1", server.server_address[1]))
    assert proxy.tunnels == []


def test_a_proxy_that_refuses_is_named(proxy, address):
    proxy.status = 407
    made = address(**{"proxy-url": f"http://{proxy.address}"})
    with opened_api(made) as api:
        with pytest.raises(LostError, match="407 Proxy Authentication Required"):
            api.ask("GET", "/version", Deadline(SECONDS))
        with pytest.raises(LostError, match=f"proxy {proxy.address} answers '407 Proxy"):
            api.execute("x", "pod", "netexec", ["true"], Deadline(SECONDS))


@pytest.mark.parametrize("scheme", ["socks5", "https"])
def test_a_proxy_of_another_kind_is_refused_without_its_password(address, scheme):
    made = address(**{"proxy-url": f"{scheme}://me:secret@proxy.example:3128"})
    with pytest.raises(UsageError, match="is no 'http://' address") as refused, opened_api(made):
        pass
    assert "secret" not in str(refused.value)
