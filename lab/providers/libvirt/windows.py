"""Windows machines that are asked for: whether they can be had."""

from __future__ import annotations

from lab._errors import PreflightError
from lab.inventory.inventory import Inventory
from lab.topology.intent import Intent

_WITHOUT = "or go on without its Windows nodes: '--only linux' (make: ONLY=linux)"


def require(intent: Intent, inventory: Inventory) -> None:
    """See that the installation media of every Windows image are there.

    Raises
    ------
    PreflightError
        Saying what to get, where to put it, and how to go on without.

    """
    wanted = {
        machine.hardware.image: machine.name
        for machine in reversed(intent.machines)
        if machine.os == "windows"
    }
    for image, node in wanted.items():
        doing = f"checking the images of scenario '{intent.scenario}'"
        source = inventory.images.get(image)
        if source is None or source.url is None:
            raise PreflightError(
                doing,
                f"node '{node}' wants image '{image}', and its installation ISO is not known",
                f"get the ISO of {image} from Microsoft (the evaluation edition will do), name it "
                f"in the inventory as 'path' of [images.{image}], {_WITHOUT}",
            )
        raise PreflightError(
            doing,
            f"node '{node}' wants image '{image}', and Windows images are not built yet",
            _WITHOUT.removeprefix("or "),
        )
