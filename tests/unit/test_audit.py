"""What the audit of the locked packages says of pip-audit's answer."""

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "tools"))
import audit

WELL: dict[str, Any] = {"name": "click", "version": "8.1.8", "vulns": []}
WEAK: dict[str, Any] = {
    "name": "jinja2",
    "version": "3.1.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1.6"]}, {"id": "PYSEC-2", "fix_versions": []}],
}
SKIPPED: dict[str, Any] = {"name": "rich", "skip_reason": "Dependency not found"}


def test_a_known_weakness_fails_with_its_name_and_its_fix():
    lines, code = audit.report([WELL, WEAK, WEAK])
    assert code == 1
    assert lines == [
        "jinja2 3.1.0: PYSEC-1, fixed in 3.1.6",
        "jinja2 3.1.0: PYSEC-2, fixed in no version yet",
        "2 packages audited, 2 weaknesses known",
    ]


def test_what_could_not_be_audited_is_named():
    lines, code = audit.report([WELL, SKIPPED])
    assert code == 0
    assert lines == ["not audited: rich", "1 packages audited, 0 weaknesses known"]


def test_an_index_without_advisories_is_no_audit():
    lines, code = audit.report([SKIPPED, SKIPPED])
    assert code == audit.NOTHING_AUDITED
    assert "nothing audited" in lines[0]
