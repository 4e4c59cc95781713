"""Credential plug-ins: run once, in time, renewed, and never printed."""

import json
import threading
from pathlib import Path

import pytest
from api_double import write_kubeconfig

from lab._errors import PreflightError, UsageError
from lab.machines.attached import connection, credentials
from lab.machines.attached.record import ClusterAddress

CONTEXT = "kubernetes-admin@kubernetes"
VERSION = "client.authentication.k8s.io/v1"


@pytest.fixture
def plugged(tmp_path, monkeypatch):
    """The address of a cluster whose user has this script as plug-in."""
    pytest.importorskip("kubernetes")
    monkeypatch.setattr(credentials, "SECONDS", 1.0)

    def make(script: str, **more: object) -> ClusterAddress:
        program = tmp_path / "plug-in"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        settings = {"apiVersion": VERSION, "command": "./plug-in", **more}
        path = write_kubeconfig(tmp_path / "a.conf", "http://127.0.0.1:9", exec=settings)
        return ClusterAddress(str(path), CONTEXT)

    return make


def answer(token: str, until: str = "2100-01-01T00:00:00Z") -> str:
    status = {"token": token, "expirationTimestamp": until}
    return json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})


def token_of(address: ClusterAddress) -> str:
    with connection.opened_api(address) as api:
        return str(api.client.configuration.get_api_key_with_prefix("BearerToken"))


# SECURITY.md: The kubeconfig is trusted.
def test_many_threads_run_the_plug_in_once(plugged, tmp_path):
    address = plugged(f"echo run >>{tmp_path}/runs; echo '{answer('secret')}'")
    tokens: list[str] = []
    threads = [threading.Thread(target=lambda: tokens.append(token_of(address))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tokens == ["Bearer secret"] * 8
    assert (tmp_path / "runs").read_text() == "run\n"


def test_credentials_that_expire_are_renewed_within_a_command(plugged, tmp_path):
    address = plugged(f"echo run >>{tmp_path}/runs; echo '{answer('old', '2020-01-01T00:00:00Z')}'")
    with connection.opened_api(address) as api:
        for _ in range(2):
            api.client.configuration.get_api_key_with_prefix("BearerToken")
    assert (tmp_path / "runs").read_text() == "run\n" * 3


def test_a_plug_in_that_hangs_on_renewal_is_an_error_of_the_request(plugged, tmp_path):
    script = f"[ ! -e {tmp_path}/asked ] || exec sleep 60; touch {tmp_path}/asked; "
    address = plugged(f"{script}echo '{answer('old', '2020-01-01T00:00:00Z')}'")
    with connection.opened_api(address) as api, pytest.raises(PreflightError, match="not ended"):
        api.ask("GET", "/version", connection.Deadline(5))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'no session' >&2; exit 3", r"failed \(3\): no session"),
        ("echo secret", "without a token or certificate"),
        ('echo \'{"status": {"token": 7, "expirationTimestamp": 9}}\'', "without a token"),
        ("sleep 60 & sleep 60", "has not ended in 1 s"),
        ("sleep 60 &", "has not ended in 1 s"),
    ],
)
def test_a_plug_in_without_credentials_is_one_sentence_without_secrets(plugged, script, words):
    with pytest.raises(PreflightError, match=words) as refused:
        token_of(plugged(script))
    assert "secret" not in str(refused.value)


def test_a_plug_in_that_is_not_installed_is_named_with_its_hint(plugged):
    with pytest.raises(PreflightError, match="no such file") as refused:
        token_of(plugged("", command="./other", installHint="get it from example.org"))
    assert refused.value.hint == "get it from example.org"


def test_a_plug_in_without_a_command_is_the_kubeconfig_s_error(plugged):
    with pytest.raises(UsageError, match="no 'command'"):
        token_of(plugged("", command=""))


def test_a_certificate_of_a_plug_in_is_used(plugged, tmp_path):
    status = {"clientCertificateData": "CERT", "clientKeyData": "KEY"}
    address = plugged(f"echo '{json.dumps({'status': status})}'")
    path = tmp_path / "a.conf"
    path.write_text(path.read_text().replace("http://", "https://"))
    made = connection._configure(address)
    assert Path(made.cert_file).read_text() == "CERT"
    assert Path(made.key_file).read_text() == "KEY"
