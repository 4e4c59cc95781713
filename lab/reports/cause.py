"""One line that explains a group of red cells, from what was found on their paths. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lab._log import quantity
from lab.matrix.verdict import CellResult


def cause(cells: Sequence[CellResult]) -> str:
    """What most of the cells have met first; empty where nothing was found on any path.

    ``on worker2, tunnel flannel.4096: VNI 4097; it should be: VNI 4096 (wrong-vni)``, and of how
    many cells, where it is not all.
    """
    met = Counter(one.finding for one in cells if one.finding)
    if not met:
        return ""
    lines = Counter[str]()
    for finding, times in met.items():
        lines[finding.line] += times
    line, times = min(lines.items(), key=lambda one: (-one[1], one[0]))
    if times == len(cells):
        return line
    return f"{line}; met by {times:,} of {quantity(len(cells), 'cell')}"
