"""Assertions about the nodes and pods of a lab, as a scenario writes them. Frozen data."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from lab.scenario.findings import quoted
from lab.scenario.values import Label, Section, SomeItems, Unwritten, annotate, text, wrong

MAX_EXIT = 255
"""The largest exit code of a process."""
MAX_SECONDS = 3600


def word(value: object) -> str:
    """One word of a command, which cannot have a null byte."""
    written = text(value)
    if "\0" in written:
        raise wrong(f"{quoted(written)} has a null byte", "no command can have one")
    return written


def pattern(value: object) -> str:
    """A regular expression of Python's ``re``."""
    written = text(value)
    try:
        re.compile(written)
    except (re.error, OverflowError, RecursionError) as error:
        message = f"{quoted(written)} is not a regular expression: {error}"
        raise wrong(
            message, "put a backslash before what is meant literally: . * + ? ( ["
        ) from None
    return written


class Assertion(Section):
    """What a command on a node or in a pod must answer; tested together with the matrix.

    Either node or pod is given. Each node or pod that matches is one test.
    """

    name: Label = Field(description="Name of the assertion.", examples=["forwarding"])
    node: str | None = Field(
        default=None,
        description="Shell pattern on the names of the nodes on which the command runs.",
        examples=["worker*"],
    )
    pod: str | None = Field(
        default=None,
        description="Shell pattern on the names of the pods (NODE-pN) in which the command runs.",
        examples=["worker1-p1"],
    )
    command: SomeItems[Annotated[str, *annotate(word, None, "cat")]] = Field(
        description="The command and its arguments, without a shell; with one: "
        '[sh, -c, "ip route | wc -l"].',
        examples=[["cat", "/proc/sys/net/ipv4/ip_forward"]],
    )
    exit: int = Field(
        default=0, ge=0, le=MAX_EXIT, description="The exit code that the command must have."
    )
    matches: Annotated[str, *annotate(pattern, None, "^1$")] | None = Field(
        default=None,
        description="Regular expression (Python's) that must match within the standard output; "
        "^ and $ match at each line.",
    )
    timeout: int = Field(
        default=30, ge=1, le=MAX_SECONDS, description="Seconds within which the command must end."
    )

    line: Unwritten[int] = 0
    """Line of the entry in the scenario file, counted from 1."""

    @property
    def place(self) -> str:
        """The pattern on the names of its nodes or pods."""
        return self.node or self.pod or ""
