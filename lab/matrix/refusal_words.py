"""The words for each way in which a probe gets no answer, in every form that a sentence needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class RefusalWords(NamedTuple):
    """One refusal: as a verb in three forms, and as a noun."""

    infinitive: str
    past: str
    present: str
    noun: str


REFUSAL_WORDS: Mapping[str, RefusalWords] = {
    "timeout": RefusalWords("to time out", "timed out", "times out", "no reply"),
    "refused": RefusalWords("to be refused", "was refused", "is refused", "a refusal"),
    "no-route": RefusalWords("to find no route", "found no route", "finds no route", "no route"),
    "no-such-name": RefusalWords(
        "to get no address", "got no address", "gets no address", "no such name"
    ),
    "several-backends": RefusalWords(
        "to be answered by several backends",
        "was answered by several backends",
        "is answered by several backends",
        "answers from several backends",
    ),
}
"""By :data:`~lab.scenario.terms.Refusal`."""
_ANY = RefusalWords("to get no answer", "got no answer", "gets no answer", "any refusal")


def refusal_words(refusal: str | None) -> RefusalWords:
    """The words for a refusal; for None, and one that this version does not know, for any."""
    return REFUSAL_WORDS.get(refusal or "", _ANY)
