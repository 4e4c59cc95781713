"""Compare what two revisions say of random states of all scenarios' machines.

    make differential OLD=main            the working tree against another revision
    .venv/bin/python tests/differential/compare.py --ignore "kind from" --unordered main overlay
    timeout 500 .venv/bin/python tests/differential/compare.py --keep build/states main

With ``--keep`` a call that was ended goes on where it was: each revision's answer to a scenario is
a file of its own. A revision that asks for what is no longer recorded is compared over the
recordings of another one: ``--recorded REVISION``.

Every state for which the two say something else is printed, with the rows that only the old (``-``)
or the new revision (``+``) has; then how often each kind of change occurs. The exit code is 1 if
there is any.
"""

from __future__ import annotations

import argparse
import hashlib
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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDED = Path("tests", "cases", "recorded")
STATES = Path(__file__).with_name("random_states.py")
COUNT = 1650
"""States of each scenario: with eleven, both revisions take three minutes on two idle cores."""


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


@dataclass(frozen=True)
class States:
    """Random states of one scenario."""

    scenario: str
    recorded: Path
    """The folder of the recorded answers that they are made of."""
    count: int
    seed: str

    def kept(self, folder: Path, revision: str) -> Path:
        """The file for what a revision says of them; another one for other recorded answers."""
        recorded = (self.recorded / f"{self.scenario}.json.xz").read_bytes()
        made_of = hashlib.sha256(recorded + STATES.read_bytes()).hexdigest()[:12]
        return folder / f"{revision}-{self.scenario}-{self.count}-{self.seed}-{made_of}.jsonl"


def working_tree() -> str:
    """A name of what the working tree has."""
    commands = (["git", "rev-parse", "HEAD"], ["git", "diff", "HEAD", "--", "lab", "tests"])
    texts = [
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
        for command in commands
    ]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


def resolved(revision: str) -> str:
    command = ["git", "rev-parse", "--short=12", f"{revision}^{{commit}}"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def dump_or_read(tree: Path, states: States, kept: Path | None) -> list[dict[str, object]]:
    """What the revision in a directory says of the states, from its file if that is there."""
    if kept and kept.exists():
        return read_rows(kept.read_text())
    text = dump(tree, states)
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        unfinished = kept.with_suffix(".new")
        unfinished.write_text(text)
        unfinished.rename(kept)
    return read_rows(text)


def read_rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def dump(tree: Path, states: States) -> str:
    """What the revision in a directory says of the states, one JSON line each."""
    here = [ROOT / "tests", ROOT / "tests" / "differential"]
    own = [tree, tree / "tests", tree / "tests" / "differential"]
    command = [sys.executable, str(here[1] / "dump.py"), str(states.recorded)]
    command += [str(states.count), states.seed, states.scenario]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (*own, *here))),
        "PYTHONSAFEPATH": "1",  # the script's own folder comes last: only states are its own
        "PYTHONHASHSEED": "0",
    }
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{tree}: dump.py ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


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
    parser.add_argument("--recorded", metavar="REVISION", help="whose recorded answers; our own")
    parser.add_argument("--keep", type=Path, help="a folder for answers: another call goes on")
    parser.add_argument("--ignore", default="", help="fields of rows, with spaces between")
    parser.add_argument("--unordered", action="store_true", help="the order of rows may differ")
    namespace = parser.parse_args()
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(os.cpu_count() or 1))
        tree = stack.enter_context(checked_out(namespace.old))
        recorded = RECORDED
        if namespace.recorded:
            recorded = stack.enter_context(checked_out(namespace.recorded)) / RECORDED
        recorded = ROOT / recorded
        shipped = sorted(path.name.partition(".")[0] for path in recorded.glob("*.xz"))
        names = namespace.scenarios or shipped
        revisions = ((tree, resolved(namespace.old)), (ROOT, working_tree()))
        every = [States(name, recorded, namespace.count, namespace.seed) for name in names]
        jobs = [
            [
                pool.submit(dump_or_read, path, states, states.kept(namespace.keep, revision))
                if namespace.keep
                else pool.submit(dump_or_read, path, states, None)
                for path, revision in revisions
            ]
            for states in every
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
