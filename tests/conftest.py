"""What every test may ask for."""

import os

from hypothesis import settings

pytest_plugins = ["pytester"]
"""Of all tests, or of none: pytest takes this from no conftest further down."""

settings.register_profile("untimed", parent=settings(), deadline=None)


def pytest_configure() -> None:
    """No test runs on the hypervisors of whoever runs it, unless it asks for them."""
    os.environ["HYBRIDLAB_INVENTORY"] = os.devnull
    settings.load_profile("untimed")
