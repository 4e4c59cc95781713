"""One bound on probes under way, divided among the machines that send them. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def divide(in_flight: int, counts: Mapping[str, int]) -> dict[str, int]:
    """How many each machine may have under way, by how many it has to send; at least one.

    The sum is at most ``in_flight``, unless there are more machines than that: then each has
    one, and no more than ``in_flight`` machines may send at once.
    """
    total = sum(counts.values())
    if not total:
        return {}
    shares = {name: max(1, in_flight * count // total) for name, count in counts.items()}
    over = sum(shares.values()) - in_flight
    while over > 0:
        largest = max(shares, key=lambda name: shares[name])
        if shares[largest] == 1:
            break
        shares[largest] -= 1
        over -= 1
    return shares
