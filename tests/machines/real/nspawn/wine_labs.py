"""Labs with Wine nodes, and how their cells are judged beside those of network namespaces."""

from __future__ import annotations

import json

import pytest
from container_labs import ContainerLabs, why_not

from lab.reports.result import cells_of
from lab.topology.observed import NAMESPACE


def new_labs(tmp_path_factory: pytest.TempPathFactory) -> ContainerLabs:
    """Labs that are not made yet; skips the test where no Wine node can join."""
    labs = ContainerLabs(tmp_path_factory.mktemp("state"))
    if why := why_not() or _missing_bundle(labs):
        pytest.skip(f"no Wine nodes here: {why}")
    return labs


def _missing_bundle(labs: ContainerLabs) -> str:
    """Why no Wine node can join here; empty if a bundle has Windows' programs."""
    listed = json.loads(labs.run("bundle", "list", "--json").stdout)
    windows = [bundle for bundle in listed if "windows" in bundle["systems"]]
    return "" if windows else "no bundle with programs for Windows"


def judged(labs: ContainerLabs, lab: str) -> dict[str, tuple[str, str, object]]:
    """Verdict, known limit and refusal of each cell in the newest run; Services in "default".

    Without the family "api": only namespaces have its cells, since a cluster's API is a real one.
    """
    run = max((labs.state / "labs" / lab / "runs").glob("*/result.json"))
    document = json.loads(run.read_text(encoding="utf-8"))
    return {
        cell["id"].replace(f".{NAMESPACE}", ".default"): (
            cell["verdict"],
            cell["detail"],
            cell["refusal"],
        )
        for cell in cells_of(document["cells"])
        if cell["family"] != "api"
    }


def judged_on_namespaces(
    labs: ContainerLabs, scenario: str, lab: str
) -> dict[str, tuple[str, str, object]]:
    """The same of the scenario on network namespaces."""
    name = f"{lab}-namespaces"
    labs.run("run", scenario, "--provider", "netns", "--name", name)
    return judged(labs, name)
