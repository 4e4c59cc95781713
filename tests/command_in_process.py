"""``lab`` in this process, as a shell would run it."""

from __future__ import annotations

import pytest

from lab.cli.main import main


def lab(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Its exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    told = capfd.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, told.out, told.err
