"""The words of the README's picture are those that the commands in it write today."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from importlib import util
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
TEXT = "{http://www.w3.org/2000/svg}text"

pytestmark = pytest.mark.slow


@pytest.fixture
def pictures() -> ModuleType:
    spec = util.spec_from_file_location("pictures", ROOT / "tools/pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words(svg: str) -> list[str]:
    """The words of the picture in order, without figures and the slowest cells."""
    lines: defaultdict[float, list[tuple[float, str]]] = defaultdict(list)
    for text in ET.fromstring(svg).iter(TEXT):
        lines[float(text.attrib["y"])].append((float(text.attrib["x"]), text.text or ""))
    line_texts = (" ".join(part for _, part in sorted(lines[y])) for y in sorted(lines))
    shown = " ".join(" ".join(line_texts).split())
    shown = re.sub(r"Latency: .*(?= [\d,]+ cells: )", "", shown)
    return re.sub(r"\d[\d,.]*", "#", shown).split()


def test_the_readmes_terminal_has_the_words_of_the_commands_in_it(lab, pictures):
    lab.run("up", "overlay")
    lab.run(*pictures.BREAK)
    for _ in range(3):  # cells may be flaky while the machine is busy
        lab.run("test", "overlay", code=1)
        result = Path(lab.run("report", "overlay").stdout.strip()).with_name("result.json")
        text = result.read_text(encoding="utf-8")
        if not json.loads(text)["counts"]["verdicts"]["flaky"]:
            break
    shown = words(pictures.TERMINAL.read_text(encoding="utf-8"))
    assert len(shown) > 100
    assert shown == words(pictures.terminal(text)), "'make pictures' draws it again"
