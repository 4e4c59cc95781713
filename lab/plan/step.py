"""A step of bring-up."""

from __future__ import annotations

from collections.abc import Callable

from lab._dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One named step of bringing a lab up; idempotent.

    ``digest`` is the hash of its inputs. A step that was done with the same digest is skipped; if
    a step runs again, all steps after it do, too. A step that is ``alongside`` the one before it
    does not need its result: both run at the same time.
    """

    name: str
    digest: str
    run: Callable[[], None]
    alongside: bool = False
