import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "matrix"))


@pytest.fixture(autouse=True)
def only_our_plugin(monkeypatch):
    """Keep other plugins, and hybridlab's entry point, out of the inner pytest."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
