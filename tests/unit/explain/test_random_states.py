"""The states that `make differential` compares: reproducible, alike in every form, and seen."""

import random
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from recorded_answers import TextPool, read_packed
from replayed_labs import RECORDED

sys.path.append(str(Path(__file__).parents[2] / "differential"))
import compare
import random_states
from projection import Projection

pytestmark = pytest.mark.room  # states of clusters need their add-ons
COUNT = 60


SCENARIOS = sorted(path.name.partition(".")[0] for path in RECORDED.glob("*.json.xz"))


@cache
def answers(scenario="overlay"):
    content = read_packed(RECORDED / f"{scenario}.json.xz")
    pool = TextPool(content["texts"])
    return tuple(pool.unpacked(content[part]) for part in ("healthy", "copy"))


@pytest.fixture
def projection():
    return Projection("overlay", *answers())


def texts(scenario="overlay"):
    return {
        place: {line: (every[0].end, every[0].text) for line, every in commands.items()}
        for place, commands in answers(scenario)[0].items()
    }


def state_of(projection, change, seed=1):
    """The first state of a machine in which this change can be made."""
    for machine in projection.pods:
        rng = random.Random(f"{seed} {machine}")
        state = random_states.RandomState(texts()[machine], {}, rng, ["10.244.1.4", "10.9.176.12"])
        if change(state):
            return machine, state
    return None


def test_the_same_seed_gives_the_same_states(projection):
    once, again = (
        [
            (machine, place, state.changes, state.answers)
            for machine, place, state in random_states.random_states(
                texts(), projection.pods, COUNT, "1"
            )
        ]
        for _ in range(2)
    )
    assert once == again
    assert len({str(changes) for _, _, changes, _ in once}) > COUNT / 2


def test_random_states_are_compared_in_both_forms_without_an_error(projection):
    origins: Counter[str] = Counter()
    states = random_states.random_states(texts(), projection.pods, COUNT, "1")
    for machine, place, state in states:
        for row in projection.rows(machine, place, state.answers, random.Random(1)):
            origins[str(row["from"]).partition(" of ")[0]] += 1
    assert set(origins) == {"lab", "machine by lab", "path", "state"}


IN_BOTH = (
    random_states.link_down,
    random_states.link_gone,
    random_states.route,
    random_states.neighbour,
    random_states.forwarding,
    random_states.queue,
    random_states.new_table,
    random_states.rule_gone,
    random_states.table_gone,
)


@pytest.mark.parametrize("change", IN_BOTH, ids=lambda change: change.__name__)
def test_a_change_is_seen_in_the_facts_and_in_the_whole_state(projection, change):
    origins = set()
    for seed in range(12):
        machine, state = state_of(projection, change, seed)
        for row in projection.rows(machine, machine, state.answers, random.Random(seed)):
            origins.add("state" if row["from"] == "state" else "facts")
    assert origins == {"facts", "state"}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_recorded_healthy_lab_differs_in_nothing(scenario):
    projection, healthy = Projection(scenario, *answers(scenario)), texts(scenario)
    for machine, pods in projection.pods.items():
        for place in (machine, *pods):
            rows = projection.rows(machine, place, healthy[place], random.Random(place))
            # an emulated Windows node has rules that none of a cluster has
            assert [row for row in rows if row["from"] != "machine by kubernetes"] == []


ROW = {"from": "state", "kind": "gone route", "object": "route to default", "wanted": "via a"}


def test_what_differs_between_revisions_is_shown_and_counted_by_kind(capsys):
    old = [{"state": "a", "rows": [ROW]}, {"state": "b", "rows": [ROW]}, {"state": "c", "rows": []}]
    new = [
        {"state": "a", "rows": [ROW]},
        {"state": "b", "rows": [{**ROW, "wanted": "via b"}]},
        {"state": "c", "rows": [ROW]},
    ]
    kinds = compare.print_differences(old, new)
    assert kinds == {"state, gone route: wanted": 1, "state, gone route is new": 1}
    printed = capsys.readouterr().out
    assert [line[:3] for line in printed.splitlines()] == ["b", "  -", "  +", "c", "  +"]
    assert '"via a"' in printed
    assert '"via b"' in printed


def test_fields_and_order_can_be_left_out_of_the_comparison():
    old = [{"state": "a", "rows": [ROW, {**ROW, "object": "rule 7"}]}]
    new = [{"state": "a", "rows": [{**ROW, "object": "rule 7", "kind": "gone rule"}, ROW]}]
    assert compare.print_differences(old, new)
    assert not compare.print_differences(old, new, ["kind"], ordered=False)


def test_another_order_of_the_same_rows_differs():
    other = {**ROW, "object": "route to 10.0.0.0/8"}
    rows = compare.differing_rows([ROW, other], [other, ROW])
    assert compare.kind_of_change(rows) in {
        "state, gone route is gone; state, gone route is new",
        "state, gone route: order",
    }


def test_what_a_revision_said_is_read_again_by_a_later_call(monkeypatch, tmp_path):
    calls: list[str] = []

    def dump(tree: Path, states: compare.States) -> str:
        calls.append(f"{tree} {states.scenario}")
        return '{"state": "a", "rows": []}\n'

    monkeypatch.setattr(compare, "dump", dump)
    states = compare.States("overlay", RECORDED, 2, "1")
    kept = [states.kept(tmp_path / "kept", revision) for revision in ("old", "old", "new")]
    answers = [compare.dump_or_read(tmp_path, states, path) for path in kept]
    assert answers == [[{"state": "a", "rows": []}]] * 3
    assert len(calls) == 2  # one of each revision
    other = compare.States("overlay", RECORDED, 3, "1")
    assert other.kept(tmp_path, "old").name != kept[0].name
