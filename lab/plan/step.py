"""A step of bringing a lab up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One named step of bringing a lab up; running it twice is as good as once.

    ``digest`` is the hash of its inputs. A step that is done with the same digest is
    skipped; when one is run again, all that follow it are too.
    """

    name: str
    digest: str
    run: Callable[[], None]
