"""What every test may ask for."""

import os

pytest_plugins = ["pytester"]
"""Of all tests, or of none: pytest takes this from no conftest further down."""


def pytest_configure() -> None:
    """No test runs on the hypervisors of whoever runs it, unless it asks for them."""
    os.environ["HYBRIDLAB_INVENTORY"] = os.devnull
