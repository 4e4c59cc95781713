from __future__ import annotations

import pytest
from shipped import cell_of, cells_of

from lab.matrix.cells import families
from lab.matrix.judge import expect, speaks_of
from lab.scenario.scenario import Limit, Match

POD = "pod-pod/win1-p1/worker1-p1/tcp-small"
PORT = "nodeport/win1/win1:to-master-p1/udp-large"
OTHER_PORT = "nodeport/client/win1:to-master-p1/udp-large"
NAME = "dns/win1-p1/to-master-p1.default/udp-small"
SHARED = "pod-service/master-p1/everyone/tcp-small"

FACETS = [
    ("nothing asked speaks of everything", Match(), POD, True),
    ("family", Match(families=frozenset({"pod-pod"})), POD, True),
    ("other family", Match(families=frozenset({"dns"})), POD, False),
    ("protocol", Match(protocol="tcp"), POD, True),
    ("other protocol", Match(protocol="udp"), POD, False),
    ("size", Match(size="small"), POD, True),
    ("other size", Match(size="large"), POD, False),
    ("source by pattern", Match(source="win1-*"), POD, True),
    ("source by its node's name", Match(source="win1"), POD, True),
    ("source that is another", Match(source="win2*"), POD, False),
    ("target's name is no source", Match(source="worker*"), POD, False),
    ("source kind", Match(source_kind="pod"), POD, True),
    ("other source kind", Match(source_kind="node"), POD, False),
    ("source system", Match(source_os="windows"), POD, True),
    ("other source system", Match(source_os="linux"), POD, False),
    ("target by name", Match(target="worker1-p1"), POD, True),
    ("target by its node's name", Match(target="worker1"), POD, True),
    ("target that is another", Match(target="win1*"), POD, False),
    ("backend behind a node port", Match(target="master-p1"), PORT, True),
    ("one backend of a shared Service", Match(target="win2-p1"), SHARED, True),
    ("no backend of a shared Service", Match(target="worker2-p2"), SHARED, False),
    ("target system", Match(target_os="linux"), POD, True),
    ("other target system", Match(target_os="windows"), POD, False),
    ("relation", Match(relation="other-node"), POD, True),
    ("other relation", Match(relation="self"), POD, False),
    ("own entry", Match(entry="own"), PORT, True),
    ("own entry is not another's", Match(entry="other"), PORT, False),
    ("the client has no entry of its own", Match(entry="other"), OTHER_PORT, True),
    ("no entry without a node port", Match(entry="other"), POD, False),
    ("name form", Match(name_form="partial"), NAME, True),
    ("other name form", Match(name_form="short"), NAME, False),
    ("no name form without a name", Match(name_form="short"), POD, False),
    ("all facets must hold", Match(protocol="tcp", source_os="linux"), POD, False),
    ("patterns mind the case", Match(source="WIN1*"), POD, False),
]


def limit(identity: str, when: Match) -> Limit:
    return Limit(id=identity, when=when, fails="timeout", reason="it is known", source="somebody")


@pytest.mark.parametrize(
    ("match", "cell", "holds"), [case[1:] for case in FACETS], ids=[case[0] for case in FACETS]
)
def test_facet(match, cell, holds):
    assert speaks_of(match, cell_of("overlay", cell)) is holds


def test_first_limit_that_speaks_of_the_cell_decides():
    limits = (
        limit("OTHER", Match(source="win2*")),
        limit("FIRST", Match(source="win1*")),
        limit("SECOND", Match()),
    )
    found = expect(cell_of("overlay", POD), limits)
    assert (found.works, found.rule, found.refusal) == (False, "FIRST", "timeout")
    assert (found.reason, found.source) == ("it is known", "somebody")


@pytest.mark.parametrize("family", families())
def test_cell_without_a_limit_works_by_the_rule_of_its_family(family):
    every = (*cells_of("overlay"), *cells_of("services"), *cells_of("kubeinit"))
    cell = next((one for one in every if one.family == family and one.refusal is None), None)
    if cell is None:
        on_request = families()[family].on_request
        assert on_request or family == "no-endpoints", "which works while there are some"
        return
    found = expect(cell, ())
    assert found.works
    assert found.refusal is None
    assert found.rule == families()[cell.family].works.rule
    assert found.reason
    assert found.source


def test_every_rule_has_an_id_of_its_own():
    rules = [one.works.rule for one in families().values()]
    rules += [rule.rule for one in families().values() for rule in one.promised.values()]
    assert len(set(rules)) == len(rules) > 20
