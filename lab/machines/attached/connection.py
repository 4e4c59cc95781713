"""Opens the API of an existing cluster, with the user's own kubeconfig."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError, PreflightError, UsageError, did_you_mean, os_failure
from lab.machines.attached.credentials import SECONDS, CredentialPlugin, find_plugin
from lab.machines.attached.recognise import READS, Reading
from lab.machines.attached.record import ClusterAddress
from lab.machines.cluster.api import Api, LostError, RefusedError

if TYPE_CHECKING:
    from kubernetes import client

_LOGIN_SECONDS = 2 * SECONDS
"""A plug-in has its own limit, and several threads may wait for it."""
_API_SECONDS = 20.0
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 401, 403, 404
_LOOPBACK = re.compile(r"localhost$|127\.|::1$")
_TEST_ADDRESS = "192.0.2.1"
"""In no cluster's Service range (RFC 5737): the refusal names the range."""


def choose_context(kubeconfig: str | None, context: str | None) -> ClusterAddress:
    """The kubeconfig and the context of it that commands use, as kubectl chooses them.

    Raises UsageError when there is no such file, when it is no kubeconfig, or has no such context;
    PreflightError when the package that reads it is not installed.
    """
    paths = kubeconfig or os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    action = f"reading the kubeconfig '{paths}'"
    if find_spec("kubernetes") is None:
        missing = "the Python package 'kubernetes' is not installed"
        raise PreflightError(action, missing, "pip install 'hybridlab[kubernetes]'")
    from kubernetes import config  # noqa: PLC0415  slow, and an extra

    hint = "--kubeconfig FILE, or the variable KUBECONFIG, names another one"
    files = [str(Path(path).absolute()) for path in paths.split(os.pathsep) if path]
    if not any(Path(file).is_file() for file in files):
        raise UsageError(action, "there is no such file", hint)
    whole = os.pathsep.join(files)
    try:
        contexts, current = config.list_kube_config_contexts(whole)
    except Exception as error:
        if context is None:
            raise UsageError(action, _first_line(error), hint) from error
        contexts, current = _contexts_alone(whole, action, hint), None
    names = [str(each["name"]) for each in contexts]
    chosen = context or (str(current["name"]) if current else "")
    if chosen not in names:
        listed = f"{did_you_mean(chosen, names)} its contexts are {', '.join(names) or 'none'}"
        raise UsageError(action, f"it has no context '{chosen}'", listed.strip())
    return ClusterAddress(whole, chosen)


def _contexts_alone(paths: str, action: str, hint: str) -> list[dict[str, object]]:
    """The contexts of a file whose current context does not exist."""
    from kubernetes.config import kube_config  # noqa: PLC0415  slow, and an extra

    try:
        merged = kube_config.KubeConfigMerger(paths)
        return [each.value for each in merged.config["contexts"]]
    except Exception as error:
        raise UsageError(action, _first_line(error), hint) from error


def _first_line(error: BaseException) -> str:
    """What a ConfigException or the system says; another error is of a file of another shape."""
    from kubernetes import config  # noqa: PLC0415  slow, and an extra

    if isinstance(error, OSError):
        return os_failure(error)
    text = str(error).strip().splitlines()
    own = text and isinstance(error, config.ConfigException)
    return text[0] if own else "it is no kubeconfig"


@contextmanager
def opened_api(address: ClusterAddress, server: str = "") -> Iterator[Api]:
    """The cluster's API for the block.

    ``server``: where it was when the lab was attached; empty for a new one.

    Raises UsageError when the kubeconfig is wrong, or its context leads to another server;
    PreflightError when a credential plug-in fails or does not end.
    """
    configuration = _configure(address)
    if server and configuration.host != server:
        raise UsageError(
            f"reading context '{address.context}' of '{address.kubeconfig}'",
            f"it leads to {configuration.host}, and the lab is on {server}",
            "restore the kubeconfig; 'lab detach NAME --forget' gives up a cluster that is gone",
        )
    api = Api(Path(address.kubeconfig), configuration=configuration)
    try:
        yield api
    finally:
        api.close()


def _configure(address: ClusterAddress) -> client.Configuration:
    from kubernetes import client  # noqa: PLC0415  slow, and an extra

    action = f"reading context '{address.context}' of '{address.kubeconfig}'"
    made = client.Configuration()
    try:
        _within(_LOGIN_SECONDS, action, lambda: _load(address, action, made))
    except LabError:
        raise
    except Exception as error:
        raise UsageError(action, _first_line(error), "see 'kubectl config view'") from error
    return made


def _load(address: ClusterAddress, action: str, made: client.Configuration) -> None:
    """Read the context into ``made``; a credential plug-in is run, and asked again on expiry."""
    from kubernetes.config import kube_config  # noqa: PLC0415  slow, and an extra

    merged = kube_config.KubeConfigMerger(address.kubeconfig).config
    context = merged["contexts"].get_with_name(address.context)["context"].value
    cluster = merged["clusters"].get_with_name(context["cluster"])
    server = str(cluster["cluster"].safe_get("server") or "")
    if not server.startswith(("https://", "http://")):
        happened = f"the server of cluster '{context['cluster']}' is no URL: '{server}'"
        raise UsageError(action, happened, "see 'kubectl config view'")
    user = merged["users"].get_with_name(context.get("user"), safe=True)
    settings = user.value.get("user") if user else None
    plugin: CredentialPlugin | None = None
    if settings and "exec" in settings:
        folder = Path(user.path).parent
        plugin = find_plugin(action, settings.pop("exec"), folder, cluster["cluster"].value)
        settings |= plugin.credentials().settings()
    kube_config.KubeConfigLoader(merged, address.context, config_base_path=None).load_and_set(made)
    _set_proxy(action, made, own="proxy-url" in cluster["cluster"].value)
    if plugin:

        def renew(configuration: client.Configuration) -> None:
            if token := plugin.credentials().token:
                configuration.api_key["BearerToken"] = f"Bearer {token}"

        made.refresh_api_key_hook = renew


def _set_proxy(action: str, made: client.Configuration, *, own: bool) -> None:
    """Use a proxy as kubectl does: with its URL's credentials; for loopback only an ``own`` one.

    ``own``: whether the kubeconfig has it, and not the environment.

    Raises UsageError for a proxy of another kind than commands in pods can use.
    """
    if not own and _LOOPBACK.match(urlsplit(made.host).hostname or ""):
        made.proxy = None
    if not made.proxy:
        return
    from urllib3.util import make_headers, parse_url  # noqa: PLC0415  slow, and an extra

    url = parse_url(made.proxy)
    if url.scheme != "http" or not url.host:
        raise UsageError(
            action,
            f"its proxy is no 'http://' address, but '{url.scheme}://{url.host}'",
            "set proxy-url of the kubeconfig's cluster, or HTTPS_PROXY, to 'http://HOST:PORT'",
        )
    if url.auth:
        made.proxy_headers = make_headers(proxy_basic_auth=unquote(url.auth))
        made.proxy = url._replace(auth=None).url


def _within(seconds: float, action: str, work: Callable[[], None]) -> None:
    """Run ``work``, which may ask a login server that never answers.

    Raises PreflightError when it has not ended in time; else what ``work`` raises.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  raised below
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise PreflightError(action, f"no login within {seconds:g} s", "try 'kubectl get nodes'")
    if raised:
        raise raised[0]


def read_cluster(api: Api) -> tuple[str, dict[str, Reading]]:
    """The API server's version, and everything that says what kind of cluster it is.

    Raises PreflightError when the API server does not answer, or refuses the user; and when the
    nodes cannot be read.
    """
    deadline = Deadline(_API_SECONDS)
    try:
        version = str(api.ask("GET", "/version", deadline).get("gitVersion", ""))
        if not version:
            raise PreflightError(
                f"reading the cluster at {api.server}",
                "what answers there is no API server of Kubernetes",
                "check the server of the context, and with a proxy that it lets you in",
            )
        readings = {name: _read(api, path, Deadline(_API_SECONDS)) for name, path in READS.items()}
        if not readings["service-cidrs"].objects:
            readings["dry-run"] = _dry_run(api)
    except (LostError, RefusedError) as error:
        raise refused(error) from error
    if not readings["nodes"].objects:
        why = readings["nodes"].refused or "it has no nodes"
        raise PreflightError(
            f"reading the nodes of the cluster at {api.server}",
            why,
            "'lab attach --rbac' prints the rights that are needed",
        )
    return version, readings


def refused(error: LostError | RefusedError) -> PreflightError:
    """The error of a cluster that cannot be entered."""
    if isinstance(error, RefusedError) and error.code == _UNAUTHORIZED:
        hint = "log in again: the token or certificate of the kubeconfig is not valid"
    elif isinstance(error, RefusedError) and error.code == _FORBIDDEN:
        hint = "'lab attach --rbac' prints the rights that are needed"
    else:
        hint = "check the server of the context, and with a VPN or proxy that it is on"
    return PreflightError(error.doing, error.happened, hint)


def _read(api: Api, path: str, deadline: Deadline) -> Reading:
    """What there is under a path; raises when the server is lost, or does not know the user."""
    try:
        answer = api.ask("GET", path, deadline)
    except RefusedError as error:
        if error.code == _UNAUTHORIZED:
            raise
        return Reading((), "" if error.code == _NOT_FOUND else error.happened)
    if "items" not in answer:
        return Reading((answer,))
    return Reading(tuple(answer.get("items") or ()))


def _dry_run(api: Api) -> Reading:
    """The refusal of a Service that is not made either way."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "hybridlab-range"},
        "spec": {"clusterIP": _TEST_ADDRESS, "ports": [{"port": 80}]},
    }
    path = "/api/v1/namespaces/default/services"
    try:
        api.ask("POST", path, Deadline(_API_SECONDS), service, {"dryRun": "All"})
    except RefusedError as error:
        return Reading((), error.happened)
    except BrokenError:
        pass
    return Reading()
