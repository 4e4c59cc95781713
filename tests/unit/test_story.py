"""The story on standard error."""

from __future__ import annotations

import pytest

from lab._log import say


def test_words_of_strangers_do_not_paint_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("it says '\x1b[2J\x1b]0;owned\x07\r\x9b31m'\n  try:\tthis, \u00e4")
    told = capsys.readouterr().err
    assert told == "it says '\\x1b[2J\\x1b]0;owned\\x07\\x0d\\x9b31m'\n  try:\tthis, \u00e4\n"
