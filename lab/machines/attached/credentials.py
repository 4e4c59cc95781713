"""Runs a kubeconfig's credential plug-in: once for all threads, until its credentials expire."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from lab._errors import PreflightError, UsageError, os_words

SECONDS = 30.0
"""How long a plug-in may take."""
_EARLY = 10.0
"""Seconds before their end at which credentials are renewed."""
_HINT = "run the command of 'users' in the kubeconfig by hand, or log in again"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a plug-in has answered."""

    token: str
    """Empty if it gives a certificate."""
    certificate: str
    key: str
    expires: float
    """Seconds since 1970; infinite if it does not say."""

    def settings(self) -> dict[str, str]:
        """The same as settings of a user in a kubeconfig."""
        if self.token:
            return {"token": self.token}
        names = ("client-certificate-data", "client-key-data")
        texts = (self.certificate, self.key)
        return {
            name: base64.b64encode(text.encode()).decode()
            for name, text in zip(names, texts, strict=True)
        }


class CredentialPlugin:
    """One plug-in; see :func:`find_plugin`."""

    def __init__(self, action: str, settings: Mapping[str, Any]) -> None:
        self._action = action
        self._settings = settings
        self._lock = threading.Lock()
        self._newest: Credentials | None = None

    def credentials(self) -> Credentials:
        """Credentials that are valid now.

        Raises UsageError when the kubeconfig does not say what to run; PreflightError when the
        plug-in is not installed, fails, does not end, or answers nothing that can be used.
        """
        with self._lock:
            if self._newest is None or self._newest.expires - _EARLY < time.time():
                self._newest = self._parse(self._run())
            return self._newest

    def _run(self) -> str:
        command, version = self._settings.get("command"), self._settings.get("apiVersion")
        if not command or not version:
            raise UsageError(self._action, "its 'exec' has no 'command' or no 'apiVersion'")
        asks = self._settings.get("interactiveMode") != "Never" and sys.stdin.isatty()
        information = {"interactive": asks} | (
            {"cluster": self._settings["cluster"]} if "cluster" in self._settings else {}
        )
        question = {"apiVersion": version, "kind": "ExecCredential", "spec": information}
        more = {item["name"]: item["value"] for item in self._settings.get("env") or ()}
        try:
            process = subprocess.Popen(  # noqa: S603  the user's own kubeconfig names it
                [command, *(self._settings.get("args") or ())],
                stdin=None if asks else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if asks else subprocess.PIPE,
                env={**os.environ, **more, "KUBERNETES_EXEC_INFO": json.dumps(question)},
                text=True,
                errors="replace",
                start_new_session=not asks,  # a terminal belongs to one session
            )
        except OSError as error:
            happened = f"the credential plug-in '{command}' cannot be run: {os_words(error)}"
            hint = str(self._settings.get("installHint") or "install it")
            raise PreflightError(self._action, happened, hint.strip()) from error
        try:
            output, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            _kill(process, whole=not asks)
            happened = f"the credential plug-in '{command}' has not ended in {SECONDS:g} s"
            raise PreflightError(self._action, happened, _HINT) from None
        except BaseException:
            _kill(process, whole=not asks)
            raise
        if process.returncode:
            last = (errors or "").strip().splitlines()[-1:]
            why = f": {last[0]}" if last else ""
            happened = f"the credential plug-in '{command}' failed ({process.returncode}){why}"
            raise PreflightError(self._action, happened, _HINT)
        return output

    def _parse(self, output: str) -> Credentials:
        """The credentials in the plug-in's output, which is in no message: it is secret."""
        try:
            status = json.loads(output)["status"]
            token = str(status.get("token") or "")
            certificate = str(status.get("clientCertificateData") or "")
            key = str(status.get("clientKeyData") or "")
            until = status.get("expirationTimestamp")
            expires = datetime.fromisoformat(until).timestamp() if until else float("inf")
        except (ValueError, KeyError, TypeError, AttributeError):
            token = certificate = key = ""
        if not (token or (certificate and key)):
            happened = "the credential plug-in has answered without a token or certificate"
            raise PreflightError(self._action, happened, _HINT)
        return Credentials(token, certificate, key, expires)


def _kill(process: subprocess.Popen[str], *, whole: bool) -> None:
    """Kill a plug-in, with ``whole`` its children, too, and close its output."""
    with suppress(ProcessLookupError):
        if whole:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def find_plugin(
    action: str, settings: Mapping[str, Any], folder: Path, cluster: Mapping[str, Any]
) -> CredentialPlugin:
    """The plug-in with these settings: one for the whole process, so that it runs once.

    ``action``: for messages. ``settings``: ``exec`` of a user in a kubeconfig. ``folder``: that of
    the kubeconfig, from which a relative path counts. ``cluster``: its settings.
    """
    whole = dict(settings)
    command = str(whole.get("command") or "")
    if "/" in command:
        whole["command"] = str(folder / command)
    if whole.get("provideClusterInfo"):
        whole["cluster"] = dict(cluster)
    return _keep_plugin(action, json.dumps(whole, sort_keys=True, default=str))


@cache
def _keep_plugin(action: str, settings: str) -> CredentialPlugin:
    return CredentialPlugin(action, json.loads(settings))
