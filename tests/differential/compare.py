"""Compare what two revisions say of random states of all scenarios' machines.

    make differential OLD=main            the working tree against another revision
    .venv/bin/python tests/differential/compare.py --ignore "kind from" --unordered main overlay

Every state for which the two say something else is printed, with the rows that only the old (``-``)
or the new revision (``+``) has; then how often each kind of change occurs. The exit code is 1 if
there is any.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDED = Path("tests", "cases", "recorded")
COUNT = 1650
"""States of each scenario: with eleven, both revisions take three minutes on two idle cores."""
_GROUPS = 3
"""Groups of scenarios, each run by one process for each revision."""


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """The files of the revision, until the block ends."""
    archive = subprocess.run(
        ["git", "archive", revision], cwd=ROOT, check=True, capture_output=True
    )
    with tempfile.TemporaryDirectory() as directory:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(directory, filter="data")
        yield Path(directory)


def dump(tree: Path, count: int, seed: str, scenarios: Sequence[str]) -> list[dict[str, object]]:
    """What the revision in a directory says of the states of the scenarios."""
    here = [ROOT / "tests", ROOT / "tests" / "differential"]
    own = [tree, tree / "tests", tree / "tests" / "differential"]
    command = [sys.executable, str(here[1] / "dump.py"), str(ROOT / RECORDED), str(count), seed]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (*own, *here))),
        "PYTHONSAFEPATH": "1",  # the script's own folder comes last: only states are its own
        "PYTHONHASHSEED": "0",
    }
    done = subprocess.run(
        [*command, *scenarios], env=environment, check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{tree}: dump.py ended with {done.returncode}:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def differing_rows(old: Sequence[object], new: Sequence[object]) -> list[tuple[str, object]]:
    """The rows that only one side has, or has elsewhere in the order, with ``-`` or ``+``."""
    texts = [[json.dumps(row, sort_keys=True) for row in rows] for rows in (old, new)]
    matcher = SequenceMatcher(a=texts[0], b=texts[1], autojunk=False)
    found: list[tuple[str, object]] = []
    for tag, first, last, begin, end in matcher.get_opcodes():
        if tag != "equal":
            found += [("-", row) for row in old[first:last]]
            found += [("+", row) for row in new[begin:end]]
    return found


def kind_of_change(rows: Sequence[tuple[str, object]]) -> str:
    """What a change has in common with others: origin and kind of the rows, and what differs."""
    old, new = ([row for mark, row in rows if mark == side] for side in "-+")
    said = []
    for one, other in zip_longest(old, new):
        shown = one or other
        assert isinstance(shown, dict)
        origin = str(shown.get("from", "error")).partition(" of ")[0]
        kind = f"{origin}, {shown.get('kind', shown.get('error'))}"
        if one is None or other is None:
            said.append(f"{kind} is {'gone' if other is None else 'new'}")
        else:
            assert isinstance(one, dict)
            assert isinstance(other, dict)
            keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
            said.append(f"{kind}: {', '.join(keys) or 'order'}")
    return "; ".join(sorted({*said}))


def print_differences(
    old: Sequence[dict],
    new: Sequence[dict],
    ignored: Collection[str] = (),
    *,
    ordered: bool = True,
) -> Counter[str]:
    """Print every difference; return the number of states of each kind of change.

    Parameters
    ----------
    ignored
        Names of fields that may differ.
    ordered
        Whether another order of the same rows is a difference.

    """
    kinds: Counter[str] = Counter()

    def compared(rows: Iterable[dict]) -> list[dict]:
        kept = [{key: row[key] for key in row if key not in ignored} for row in rows]
        return kept if ordered else sorted(kept, key=lambda row: json.dumps(row, sort_keys=True))

    for one, other in zip(old, new, strict=True):
        assert one["state"] == other["state"], "both have the same states"
        rows = differing_rows(compared(one["rows"]), compared(other["rows"]))
        if rows:
            kinds[kind_of_change(rows)] += 1
            print(one["state"])
            for mark, row in rows:
                print(f"  {mark} {json.dumps(row)}")
    return kinds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", help="a revision, as git names it")
    parser.add_argument("scenarios", nargs="*", help="all that are recorded if none is named")
    parser.add_argument("--count", type=int, default=COUNT, help="states of each scenario")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--ignore", default="", help="fields of rows, with spaces between")
    parser.add_argument("--unordered", action="store_true", help="the order of rows may differ")
    namespace = parser.parse_args()
    recorded = sorted(path.name.partition(".")[0] for path in (ROOT / RECORDED).glob("*.xz"))
    names = namespace.scenarios or recorded
    with checked_out(namespace.old) as tree, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        groups = [names[first::_GROUPS] for first in range(min(_GROUPS, len(names)))]
        jobs = [
            [
                pool.submit(dump, path, namespace.count, namespace.seed, group)
                for path in (tree, ROOT)
            ]
            for group in groups
        ]
        old, new = ([row for pair in jobs for row in pair[side].result()] for side in (0, 1))
    kinds = print_differences(old, new, namespace.ignore.split(), ordered=not namespace.unordered)
    said = sum(1 for one in new if one["rows"])
    print(f"\n{len(new):,} states, {said:,} with differences from the lab's; seed {namespace.seed}")
    for kind, number in kinds.most_common():
        print(f"{number:>6,} states differ: {kind}")
    print(f"{sum(kinds.values()):,} states differ between {namespace.old} and the working tree")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
