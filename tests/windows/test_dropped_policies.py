"""Policies that a CNI plugin drops silently are found, in the lab's own configurations too."""

import json

import pytest

from lab.windows.cni import dropped_policies

OLD = {"Type": "OutBoundNAT", "ExceptionList": ["10.244.0.0/16"]}
NEW = {"Type": "OutBoundNAT", "Settings": {"Exceptions": ["10.244.0.0/16"]}}


def win(policy: object, version: int) -> dict[str, object]:
    """A configuration of win-overlay."""
    return {
        "type": "win-overlay",
        "apiVersion": version,
        "policies": [{"name": "EndpointPolicy", "value": policy}],
    }


def sdn(policy: object) -> dict[str, object]:
    """A configuration of sdnoverlay."""
    return {"type": "sdnoverlay", "AdditionalArgs": [{"Name": "EndpointPolicy", "Value": policy}]}


@pytest.mark.parametrize(
    "configuration",
    [
        win(OLD, 2),
        sdn(OLD),
        {"type": "flannel", "delegate": win(OLD, 2)},
        {"plugins": [sdn(NEW), sdn(OLD)]},
    ],
)
def test_the_old_form_is_dropped_where_version_2_is_asked_for(configuration: object) -> None:
    assert dropped_policies(configuration) == (json.dumps(OLD),)


@pytest.mark.parametrize(
    "configuration",
    [win(NEW, 2), sdn(NEW), win(OLD, 1), {"type": "flannel", "delegate": win(NEW, 2)}, [], "x"],
)
def test_what_the_plugin_understands_is_kept(configuration: object) -> None:
    assert dropped_policies(configuration) == ()
