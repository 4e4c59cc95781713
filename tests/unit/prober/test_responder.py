from __future__ import annotations

import json
import resource

import pytest

from lab.providers.netns import isolation, responder


def test_a_configuration_is_read_entry_by_entry() -> None:
    text = json.dumps(
        [
            {"namespace": "n", "name": "p", "tcp": [8080], "udp": [8080, 9], "dns": None},
            {"namespace": "/x/y", "name": "d", "tcp": [], "udp": [], "dns": {"a.": ["1.2.3.4"]}},
        ]
    )
    pod, dns = responder.read_config(text)
    assert (pod.namespace, pod.name, pod.tcp, pod.udp) == ("n", "p", (8080,), (8080, 9))
    assert (pod.sockets(), dns.sockets()) == (3, 2)
    assert dns.dns == {"a.": ["1.2.3.4"]}


def test_health_checks_have_a_socket_each() -> None:
    told = {"namespace": "n", "name": "n", "tcp": [1], "udp": [], "health": {"32000": ["web", 2]}}
    (node,) = responder.read_config(json.dumps([told]))
    assert node.health == {"32000": ["web", 2]}
    assert node.sockets() == 2


@pytest.mark.parametrize("text", ["", "{}x", '[{"namespace": "n"}]'])
def test_a_broken_configuration_is_refused(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        responder.read_config(text)


def test_the_limit_of_open_files_is_raised_and_never_lowered() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
        isolation.raise_descriptors(200)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (256, limits[1])
        isolation.raise_descriptors(300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, limits[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_limit_that_may_not_be_raised_is_raised_as_far_as_it_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []

    def refuse_beyond_hard(_which: int, limits: tuple[int, int]) -> None:
        asked.append(limits)
        if limits[1] > 1000:
            raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1000))
    monkeypatch.setattr(resource, "setrlimit", refuse_beyond_hard)
    isolation.raise_descriptors(5000)
    assert asked == [(5000, 5000), (1000, 1000)]
