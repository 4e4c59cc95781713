"""Labs of system containers for tests."""

import pytest
from container_labs import ContainerLabs, why_not


@pytest.fixture(scope="module")
def labs(tmp_path_factory):
    why = why_not()
    if why:
        pytest.skip(f"no system containers here: {why}")
    made = ContainerLabs(tmp_path_factory.mktemp("state"))
    yield made
    made.run("gc", "--yes", "--older-than", "0s")
    assert made.left() == set()
