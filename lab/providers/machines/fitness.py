"""Which labs can run here of machines at all, whatever their hosts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection

from lab._errors import PreflightError
from lab.cluster.addons.addon import addons
from lab.cluster.linux.daemons import required_packages, unfit_daemons
from lab.topology.intent import Intent


def unfit(intent: Intent) -> str:
    """Why there can be no such lab on machines; empty where there can."""
    why = unfit_daemons(intent)
    if why:
        return f"topology '{intent.topology}' needs daemons on its machines: {why}"
    if intent.kubernetes is None:
        return ""
    addon = addons().get(intent.topology)
    if addon is None:
        return (
            f"there is no network add-on for topology '{intent.topology}', "
            "so there is no Kubernetes cluster of it yet"
        )
    return addon.unfit(intent)


def require_fit(intent: Intent) -> None:
    """Refuse what cannot be had.

    Raises PreflightError saying why, and what can be had instead.
    """
    why = unfit(intent)
    if why:
        without = (
            "" if unfit_daemons(intent) else "; or '--pods namespaces' for a lab without Kubernetes"
        )
        raise PreflightError(
            f"checking scenario '{intent.scenario}' for machines",
            why,
            f"'--provider netns' brings it up in network namespaces{without}",
        )


def require_packages(intent: Intent, packages_of: Callable[[str], Collection[str] | None]) -> None:
    """See that the machines' images have the programs that they are to run.

    ``packages_of``: of an image's recipe; None where it is not set.

    Raises PreflightError naming each image and what it lacks.
    """
    lacking: dict[str, set[str]] = {}
    for name, wanted in required_packages(intent).items():
        image = intent.machine(name).hardware.image
        there = packages_of(image)
        if there is not None and not wanted <= set(there):
            lacking.setdefault(image, set()).update(wanted - set(there))
    if lacking:
        missing = (
            f"'{image}' has no {', '.join(sorted(names))}" for image, names in lacking.items()
        )
        raise PreflightError(
            f"looking for the programs of scenario '{intent.scenario}' in its machines' images",
            "; ".join(missing),
            "add the packages to a recipe of your own based on 'debian-12', which has those of "
            "every shipped scenario",
        )
