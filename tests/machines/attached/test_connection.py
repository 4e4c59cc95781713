"""Choosing a cluster: what is refused before anything is asked."""

import pytest

from lab._errors import PreflightError, UsageError
from lab.machines.attached import connection

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: prod
contexts: [{name: prod, context: {cluster: prod, user: me}}]
clusters: [{name: prod, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: me, user: {token: secret}}]
"""


@pytest.fixture
def kubeconfig(tmp_path):
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    return str(path)


def test_the_current_context_is_taken_unless_another_is_named(kubeconfig):
    chosen = connection.choose_context(kubeconfig, None)
    assert (chosen.kubeconfig, chosen.context) == (kubeconfig, "prod")


@pytest.mark.parametrize(
    ("text", "context", "words"),
    [
        (None, None, "there is no such file"),
        ("[]", None, "it is no kubeconfig"),
        (KUBECONFIG, "prdo", "it has no context 'prdo'"),
    ],
)
def test_a_wrong_kubeconfig_or_context_is_refused(tmp_path, text, context, words):
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError) as refused:
        connection.choose_context(str(path), context)
    assert words in str(refused.value)


def test_without_the_extra_the_package_is_named(monkeypatch, kubeconfig):
    monkeypatch.setattr(connection, "find_spec", lambda _: None)
    with pytest.raises(PreflightError, match="'kubernetes' is not installed") as refused:
        connection.choose_context(kubeconfig, None)
    assert refused.value.hint == "pip install 'hybridlab[kubernetes]'"
