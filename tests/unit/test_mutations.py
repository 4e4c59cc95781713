"""What `tools/mutate.py` says of a change that tests notice, of one that none does, and of a stale
one."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))
import mutate


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "limits.py").write_text("FEWEST = 3\nMOST = 9\n")
    (tmp_path / "test_limits.py").write_text(
        "import limits\n\ndef test_fewest():\n    assert limits.FEWEST == 3\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("old", "verdict", "reason"),
    [
        ("FEWEST = 3", "caught", "FAILED test_limits.py::test_fewest"),
        ("MOST = 9", "missed", "limits.py: test_limits.py passed"),
        ("MOST = 10", "stale", "the old text is not in limits.py exactly once"),
    ],
)
def test_a_mutation_is_caught_or_missed_or_stale_and_the_file_is_as_before(
    tree, old, verdict, reason
):
    mutation = mutate.Mutation("a", "limits.py", old, old[:-1] + "1", ("test_limits.py",))
    assert mutate.judge(tree, mutation) == (verdict, reason)
    assert (tree / "limits.py").read_text() == "FEWEST = 3\nMOST = 9\n"


def test_a_mutation_without_tests_that_run_is_stale(tree):
    mutation = mutate.Mutation("a", "limits.py", "MOST = 9", "MOST = 1", ("no_such_test.py",))
    verdict, reason = mutate.judge(tree, mutation)
    assert verdict == "stale"
    assert "pytest ended with 4" in reason


@pytest.mark.room
def test_every_mutation_of_the_list_fits_its_file_and_names_tests_that_exist():
    for mutation in mutate.read_mutations():
        text = (mutate.ROOT / mutation.file).read_text(encoding="utf-8")
        assert text.count(mutation.old) == 1, mutation.name
        for test in mutation.tests:
            assert (mutate.ROOT / test.partition("::")[0]).exists(), test
