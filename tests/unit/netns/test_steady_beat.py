"""What goes to and fro while a failover is measured, in both dialects of pods."""

from __future__ import annotations

from lab.providers.netns import dialects


def test_a_numbered_datagram_comes_back_from_a_cluster_s_pod_as_its_number() -> None:
    sent = dialects.netexec_echo(17)
    assert sent.startswith(b"echo ")
    assert dialects.netexec_number(sent.removeprefix(b"echo ")) == 17


def test_what_is_no_answer_has_no_number() -> None:
    assert dialects.netexec_number(b"") is None
    assert dialects.netexec_number(b"worker-p1") is None
