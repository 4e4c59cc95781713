"""What every test may ask for."""

pytest_plugins = ["pytester"]
"""Of all tests, or of none: pytest takes this from no conftest further down."""
