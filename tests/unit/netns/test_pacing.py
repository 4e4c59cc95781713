"""How many probes of a logical network go at once, and which wait longer for an answer."""

from __future__ import annotations

from itertools import count

import pytest

from lab.lifecycle.compilation import compile_scenario
from lab.providers.netns.provider import batches
from lab.providers.provider import Probe, ProbeSettings

ASKED = ProbeSettings(1.0, 256)
_KEYS = count()


def _probe(protocol: str, size: str, *, unanswered: bool = False) -> Probe:
    where = ("10.0.1.4", 8080, 1442)
    return Probe(next(_KEYS), "p", protocol, size, *where, unanswered=unanswered)  # type: ignore[arg-type]


PROBES = [
    _probe("tcp", "small"),
    _probe("udp", "small"),
    _probe("tcp", "large"),
    _probe("udp", "large"),
    _probe("udp", "small", unanswered=True),
    _probe("udp", "small"),
]


def test_a_switch_in_user_space_is_probed_by_kinds_one_after_another():
    paced = list(batches(compile_scenario("ovn").intent, PROBES, ASKED))
    assert [[PROBES.index(one) for one in own] for own, _ in paced] == [[1, 5], [3], [0, 2], [4]]
    assert [settings for _, settings in paced] == [
        ProbeSettings(2.0, 32),
        ProbeSettings(2.0, 12),
        ProbeSettings(4.0, 12),
        ASKED,
    ]


def test_no_more_at_once_than_asked():
    paced = batches(compile_scenario("ovn").intent, PROBES, ProbeSettings(1.0, 4))
    assert {settings.in_flight for _, settings in paced} == {4}


@pytest.mark.parametrize("scenario", ["overlay", "calico-bgp"])
def test_the_kernel_is_probed_as_asked(scenario):
    assert list(batches(compile_scenario(scenario).intent, PROBES, ASKED)) == [(PROBES, ASKED)]
