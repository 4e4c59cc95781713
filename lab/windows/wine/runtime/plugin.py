r"""A CNI plugin of Linux's containerd that calls the node's Windows plugin of the same name.

``C:\etc\cni\net.d`` has the configuration that the lab writes on a Windows node, and containerd
reads it there; what it calls by the plugin's name is this program. It names the pod's network
namespace to HNS by a GUID, and calls ``C:\opt\cni\bin\NAME.exe`` on Wine with the GUID as
CNI_NETNS, as containerd.exe does.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab.windows.wine.runtime.places import RUN

HNS_PORT = 18081
PLUGINS = "C:\\opt\\cni\\bin"
_SECONDS = 60.0
_PLUGIN_FAILED = 999
"""CNI's own codes end at 99."""


def namespace_guid(container: str) -> str:
    """The GUID of a sandbox's namespace; the same for each call of it."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, container))


def environment(given: Mapping[str, str], guid: str) -> dict[str, str]:
    """The variables of the Windows plugin. Pure."""
    kept = {name: value for name, value in given.items() if name.startswith("CNI_")}
    return {**kept, "CNI_NETNS": guid, "CNI_PATH": PLUGINS}


def linux_result(result: Mapping[str, Any], netns: str) -> dict[str, Any]:
    """The result as Linux's containerd wants it: with the interface in the namespace. Pure.

    CNI's version 0.2.0, which sdnoverlay answers, has no interfaces: that is left as it is.
    """
    if "ips" not in result:
        return dict(result)
    addresses = []
    for address in result.get("ips") or ():
        kept = {key: address[key] for key in ("address", "gateway") if address.get(key)}
        addresses.append({**kept, "version": "4", "interface": 0})
    return {
        "cniVersion": result.get("cniVersion", "0.3.1"),
        "interfaces": [{"name": "eth0", "sandbox": netns}],
        "ips": addresses,
        "dns": result.get("dns") or {},
    }


def _tell_hns(operation: str, guid: str, document: Mapping[str, object]) -> None:
    """Tell HNS of a sandbox's namespace; OSError when it refuses or does not answer."""
    body = json.dumps(document).encode()
    head = f"{operation}\nnamespaces {guid}\n{len(body)}\n".encode()
    with socket.create_connection(("127.0.0.1", HNS_PORT), _SECONDS) as channel:
        channel.sendall(head + body)
        answer = channel.makefile().read()
    if answer.partition("\n")[0] != "0":
        raise OSError(f"HNS: {operation} namespace {guid}: {answer or 'no answer'}")


def main(name: str) -> int:
    """Do what CNI_COMMAND says with the Windows plugin of a name; returns the exit code."""
    command, netns = os.environ["CNI_COMMAND"], os.environ.get("CNI_NETNS", "")
    configuration = sys.stdin.read()
    if command == "VERSION":
        versions = {
            "cniVersion": "1.0.0",
            "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0"],
        }
        print(json.dumps(versions))
        return 0
    if command == "CHECK":
        return 0
    try:
        done = _call(name, command, netns, configuration)
    except (OSError, subprocess.TimeoutExpired) as error:
        return _failed(str(error))
    if done.returncode:
        if not _is_document(done.stdout):  # it has ended without CNI's error
            return _failed(done.stdout.strip() or done.stderr.strip()[-600:])
        print(done.stdout)
        return 1
    if command == "ADD":
        print(json.dumps(linux_result(json.loads(done.stdout), netns)))
    return 0


def _call(
    name: str, command: str, netns: str, configuration: str
) -> subprocess.CompletedProcess[str]:
    """Call the Windows plugin between HNS' learning of the namespace and its forgetting it."""
    guid = namespace_guid(os.environ["CNI_CONTAINERID"])
    if command == "ADD":
        _tell_hns("bind", guid, {"Netns": Path(netns).name})
    done = subprocess.run(  # noqa: S603  the node's own
        (RUN, f"{PLUGINS}\\{name}.exe"),
        input=configuration,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        env={**os.environ, **environment(os.environ, guid)},
        check=False,
    )
    if command == "DEL" and done.returncode == 0:
        with suppress(OSError):  # a namespace of an earlier start is gone already
            _tell_hns("delete", guid, {})
    return done


def _failed(words: str) -> int:
    """Print CNI's error; returns the exit code."""
    print(json.dumps({"cniVersion": "0.3.1", "code": _PLUGIN_FAILED, "msg": words}))
    return 1


def _is_document(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
