"""Print what a revision says of random states, one JSON line a state. Run by compare.py.

    PYTHONPATH=REVISION:HERE dump.py RECORDED COUNT SEED SCENARIO ...

``recorded_answers`` and ``projection`` are of the revision, if it has them; the states are not.
"""

from __future__ import annotations

import json
import random
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from projection import Projection
from recorded_answers import TextPool, read_packed


def load_states() -> ModuleType:
    """``random_states`` beside this file; the revision's own is first on the path."""
    path = Path(__file__).with_name("random_states.py")
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dump(scenario: str, recorded: Path, count: int, seed: str) -> None:
    content = read_packed(recorded / f"{scenario}.json.xz")
    pool = TextPool(content["texts"])
    healthy, copy = (pool.unpacked(content[part]) for part in ("healthy", "copy"))
    projection = Projection(scenario, healthy, copy)
    texts = {
        place: {line: (answers[0].end, answers[0].text) for line, answers in commands.items()}
        for place, commands in healthy.items()
    }
    rng = random.Random(f"{seed} rows")
    states = load_states().random_states(texts, projection.pods, count, f"{seed} {scenario}")
    for number, (machine, place, state) in enumerate(states):
        choice = random.Random(rng.random())  # however often a revision asks for a number
        try:
            rows = [*projection.rows(machine, place, state.answers, choice)]
        except Exception as error:  # noqa: BLE001  a result like any other
            rows = [{"error": f"{type(error).__name__}: {error}"}]
        title = f"{scenario} {number}, {place}: {'; '.join(state.changes)}"
        print(json.dumps({"state": title, "rows": rows}), flush=False)


def main() -> None:
    recorded, count, seed, *scenarios = sys.argv[1:]
    for scenario in scenarios:
        dump(scenario, Path(recorded), int(count), seed)


if __name__ == "__main__":
    main()
