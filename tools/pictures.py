"""Draw the pictures of the README into docs/pictures, from a broken lab.

    python tools/pictures.py    needs chromium

terminal.svg is the output of `lab test`, drawn by rich; report.png is the report in a browser.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console

from lab.reports.result import from_json, parse_json
from lab.reports.terminal import make_summary

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs/pictures"
TERMINAL = PICTURES / "terminal.svg"
LAB = (sys.executable, "-m", "lab")
BREAK = ("fault", "overlay", "tunnel-udp-dropped", "--node", "worker2")
WIDTH = 100
FORMAT = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px;
line-height: {line_height}px; }} {styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{width}" height="{height}"/></clipPath>{lines}</defs>
<rect fill="#171d1c" width="{width}" height="{height}" rx="8"/>
<g transform="translate(9, 9)" clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""rich's own format, without a window and without remote fonts."""
BROWSER = (
    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
    "--window-size=1000,880",
)


def main() -> None:
    """Draw both pictures."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as state:
        environment = {**os.environ, "HYBRIDLAB_STATE": state}

        def lab(*words: str, code: int = 0) -> str:
            done = subprocess.run(  # noqa: S603  our own commands
                (*LAB, *words), env=environment, stdout=subprocess.PIPE, text=True, check=False
            )
            assert done.returncode == code, words
            return done.stdout

        lab("up", "overlay")
        try:
            lab(*BREAK)
            lab("test", "overlay", code=1)
            report = Path(lab("report", "overlay").strip())
        finally:
            lab("down", "overlay")
        result = (report.parent / "result.json").read_text(encoding="utf-8")
        TERMINAL.write_text(terminal(result), encoding="utf-8")
        shot = f"--screenshot={PICTURES / 'report.png'}"
        subprocess.run(  # noqa: S603  the same
            (*BROWSER, shot, report.as_uri()), check=True, stderr=subprocess.DEVNULL
        )


def terminal(result: str) -> str:
    """The run's summary as it is on a terminal, as SVG."""
    run, _ = from_json(parse_json(result))
    console = Console(record=True, width=WIDTH, force_terminal=True, file=StringIO())
    console.print(f"$ lab {' '.join(BREAK)}\n$ lab test overlay", highlight=False)
    console.print(make_summary(run, "report.html"))
    return console.export_svg(code_format=FORMAT, unique_id="terminal")


if __name__ == "__main__":
    main()
