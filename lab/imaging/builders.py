"""Which builder makes an image of which kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lab.imaging import bootstrap, cloud, iso
from lab.imaging.job import Built, Job
from lab.imaging.recipe import Kind
from lab.imaging.windows import build as windows

_BUILDERS: Mapping[Kind, Callable[[Job], Built]] = {
    "bootstrap": bootstrap.build,
    "cloud": cloud.build,
    "iso": iso.build,
    "windows": windows.build,
}


def build(job: Job) -> Built:
    """Fill the job's scratch directory; see the builders for what they raise."""
    return _BUILDERS[job.recipe.kind](job)
