"""Kubeconfigs, rights and servers that are wrong: one sentence, an exit code, and nothing left."""

import json

import pytest
from api_double import write_kubeconfig

from lab._deadline import Deadline
from lab.machines.attached.connection import choose_context, opened_api
from lab.machines.cluster.api import LostError


def message(err: str) -> str:
    """The error, in one line."""
    (line,) = (line for line in err.splitlines() if line.startswith("error: "))
    assert "Traceback" not in err
    return line


def test_a_context_that_does_not_exist_is_wrong(lab, kubeconfig):
    code, _, err = lab("check", "--kubeconfig", kubeconfig, "--context", "prod")
    assert code == 2
    assert "it has no context 'prod'" in message(err)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "file is empty"),
        ("just text", "it is no kubeconfig"),
        ("\x00", "it is no kubeconfig"),
        ("{apiVersion: v1, kind: Pod}", "Expected key current-context"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_wrong(lab, tmp_path, text, words):
    path = tmp_path / "b.conf"
    path.write_text(text)
    code, _, err = lab("attach", "prod", "--kubeconfig", path)
    assert (code, words in message(err)) == (2, True), err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"clusters": []}, "Expected object with name it"),
        ({"clusters": [{"name": "it", "cluster": {}}]}, "cluster 'it' is no URL: ''"),
        ({"users": [{"name": "me", "user": {"tokenFile": "/none"}}]}, "no such file"),
        ({"users": "me"}, "Expected key name"),
    ],
)
def test_a_kubeconfig_of_half_a_cluster_is_wrong(lab, kubeconfig, change, words):
    kubeconfig.write_text(json.dumps(json.loads(kubeconfig.read_text()) | change))
    code, _, err = lab("attach", "prod", "--kubeconfig", kubeconfig)
    assert (code, words in message(err)) == (2, True), err


def test_a_server_that_is_no_api_server_is_no_cluster(lab, kubeconfig, double):
    double.version = ""
    code, _, err = lab("check", "--kubeconfig", kubeconfig)
    assert code == 4
    assert "is no API server of Kubernetes" in message(err)


def test_a_server_that_does_not_answer_is_named(lab, tmp_path):
    path = write_kubeconfig(tmp_path / "b.conf", "http://127.0.0.1:1")
    code, _, err = lab("check", "--kubeconfig", path)
    assert code == 4
    assert "http://127.0.0.1:1" in message(err)
    assert "connection refused" in message(err)


@pytest.mark.parametrize("user", [{}, {"token": "expired-secret"}])
def test_an_expired_token_is_said_and_not_printed(lab, tmp_path, double, user):
    double.token = "valid"
    path = write_kubeconfig(tmp_path / "b.conf", double.url, **user)
    code, out, err = lab("check", "--kubeconfig", path)
    assert code == 4
    assert "Unauthorized" in message(err)
    assert "log in again" in err
    assert "expired-secret" not in out + err


def test_a_plug_in_that_hangs_ends_the_command(lab, tmp_path, double):
    settings = {"apiVersion": "v1", "command": "sleep", "args": ["60"]}
    path = write_kubeconfig(tmp_path / "b.conf", double.url, exec=settings)
    code, _, err = lab("check", "--kubeconfig", path)
    assert code == 4
    assert "the credential plug-in 'sleep' has not ended" in message(err)


def test_nodes_that_may_not_be_read_end_it(lab, kubeconfig, double):
    double.refused["GET", "/api/v1/nodes"] = 403
    code, _, err = lab("check", "--kubeconfig", kubeconfig)
    assert code == 4
    assert "cannot GET /api/v1/nodes" in message(err)
    assert "lab attach --rbac" in err


@pytest.mark.parametrize(
    ("right", "hint"),
    [
        (("create", "namespaces"), "'--namespace NAME' uses an existing namespace"),
        (("create", "pods"), "'lab attach --rbac' prints the roles"),
    ],
)
def test_a_right_that_is_missing_is_named_before_anything_is_made(
    lab, kubeconfig, double, right, hint
):
    double.missing_rights.add(right)
    space = () if right[1] == "namespaces" else ("--namespace", "my-namespaces")
    code, _, err = lab("check", "--kubeconfig", kubeconfig, *space)
    assert code == 4
    assert f"these rights are missing: {' '.join(right)}" in message(err)
    assert hint in err
    assert ("--namespace NAME" in err) == (right[1] == "namespaces")
    made = {path.rpartition("/")[2] for method, path in double.asked if method == "POST"}
    assert made == {"selfsubjectaccessreviews"}
    assert "no labs" in "".join(lab("list")[1:])


def test_a_refused_exec_is_told_in_the_server_s_words(kubeconfig, double):
    double.refused["GET", "/exec"] = 403
    address = choose_context(str(kubeconfig), None)
    with opened_api(address) as api, pytest.raises(LostError) as lost:
        api.execute("team", "plane-p1", "netexec", ["curl"], Deadline(5))
    assert lost.value.happened == "user cannot GET /exec"


def test_a_namespace_that_does_not_exist_is_wrong(lab, kubeconfig):
    code, _, err = lab("check", "--kubeconfig", kubeconfig, "--namespace", "team")
    assert code == 2
    assert "there is no namespace 'team'" in message(err)


def test_a_user_of_one_namespace_need_not_read_namespaces(lab, kubeconfig, double):
    space = "/api/v1/namespaces/team"
    double.add(f"{space}/serviceaccounts/default")
    double.refused["GET", space] = 403
    where = ("--kubeconfig", kubeconfig, "--namespace", "team")
    code, _, err = lab("attach", "prod", *where)
    assert code == 0, err
    assert lab("detach", "prod")[0] == 0


@pytest.mark.parametrize("end", ["/namespaces", "/services", "/pods"])
def test_a_server_that_dies_in_the_middle_leaves_nothing_that_detach_does_not_find(
    impatient, kubeconfig, double, end
):
    double.dies_at = ("POST", end)
    code, _, err = impatient("attach", "prod", "--kubeconfig", kubeconfig)
    assert code == 3
    assert "lab down prod" not in err
    double.deaf, double.dies_at = False, None
    assert impatient("detach", "prod")[0] == 0
    assert not any("hybridlab-" in path for path in double.objects)


def test_a_check_whose_server_dies_is_taken_away_by_gc(impatient, kubeconfig, double):
    double.dies_at = ("POST", "/pods")
    code, _, err = impatient("check", "--kubeconfig", kubeconfig)
    assert code == 3
    assert "lab attach check-" not in err
    double.deaf, double.dies_at = False, None
    assert any("hybridlab-check-" in path for path in double.objects)
    assert impatient("gc", "--yes")[0] == 0
    assert not any("hybridlab-" in path for path in double.objects)
