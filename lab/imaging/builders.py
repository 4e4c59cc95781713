"""Which builder makes an image of which kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lab._errors import PreflightError
from lab.imaging import bootstrap, cloud, iso
from lab.imaging.job import Built, Job
from lab.imaging.recipe import Kind


def _windows(job: Job) -> Built:
    raise PreflightError(
        job.doing, "images of Windows cannot be built yet", "use another recipe until they can be"
    )


_BUILDERS: Mapping[Kind, Callable[[Job], Built]] = {
    "bootstrap": bootstrap.build,
    "cloud": cloud.build,
    "iso": iso.build,
    "windows": _windows,
}


def build(job: Job) -> Built:
    """Fill the job's scratch directory; see the builders for what they raise."""
    return _BUILDERS[job.recipe.kind](job)
