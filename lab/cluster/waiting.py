"""Waiting for objects of the API to become as they should be: by watching, not by asking again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress

from lab._deadline import Deadline
from lab._errors import DeadlineError
from lab.cluster.api import Api, GoneError, LostError, Object, ObjectList, Query

Objects = Mapping[str, Object]
Missing = Callable[[Objects], str]
"""From the objects by name to what is still missing, in words; empty where nothing is."""
_AGAIN_SECONDS = 0.25


def wait_for(  # noqa: PLR0913  what is waited for, and how
    api: Api,
    path: str,
    missing: Missing,
    doing: str,
    deadline: Deadline,
    *,
    query: Query | None = None,
    hint: str = "",
) -> Objects:
    """Watch the objects of a path until nothing is missing, and return them.

    An API server that is lost for a while is borne; so is one that has forgotten the past.

    Raises
    ------
    DeadlineError
        With what is missing, and what the API server's last trouble was.
    RefusedError
        When the API server says no.

    """
    lacking, trouble = "the API server has not been asked yet", ""
    while True:
        try:
            listed = api.listing(path, deadline, query)
            lacking, trouble = missing(listed.objects), ""
            if lacking:
                lacking = _follow(api, path, listed, missing, lacking, deadline, query)
            if not lacking:
                return listed.objects
        except LostError as error:
            trouble = f"; the API server is lost: {error.happened}"
        if not deadline.left():
            raise DeadlineError(
                doing, f"not done within {deadline.seconds:g} s: {lacking}{trouble}", hint
            )
        # A server that ends each watch at once must not be asked as fast as it answers.
        time.sleep(min(_AGAIN_SECONDS, deadline.left()))


def _follow(  # noqa: PLR0913, PLR0917  the state of one watch
    api: Api,
    path: str,
    listed: ObjectList,
    missing: Missing,
    lacking: str,
    deadline: Deadline,
    query: Query | None,
) -> str:
    """Apply what happens to the objects until nothing is missing, or the watch ends."""
    watch = api.watch(path, listed.version, deadline, query)
    with suppress(GoneError), closing(watch):
        for kind, found in watch:
            if kind == "BOOKMARK":
                continue
            name = found["metadata"]["name"]
            if kind == "DELETED":
                listed.objects.pop(name, None)
            else:
                listed.objects[name] = found
            lacking = missing(listed.objects)
            if not lacking or not deadline.left():
                break
    return lacking
