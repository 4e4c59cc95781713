"""A hook of MkDocs that adds pages of the top directory to the site and adapts their links.

A link to a file that is not a page (a scenario, a script) becomes the file's name.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {
    "index.md": "README.md",
    **{f"{n}.md": f"{n}.md" for n in ("CHANGELOG", "CONTRIBUTING", "SECURITY")},
}
"""Name in the site to path in the top directory."""
COPIED = "[data-md-copying] :is(.gp, .go) { display: none }"
"""Of a console, "Copy" takes the commands, without prompts and output."""
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Every page of a scenario is in the navigation, the index first."""
    pages = sorted(path.name for path in (DOCS / "scenarios").glob("*.md"))
    for part in config["nav"]:
        if "Scenarios" in part:
            part["Scenarios"] = [f"scenarios/{name}" for name in pages]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the top directory, and a style."""
    files.append(File.generated(config, "copy.css", content=COPIED))
    for name, path in PAGES.items():
        files.append(
            File.generated(config, name, content=(ROOT / path).read_text(encoding="utf-8"))
        )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Adapt links to pages of the site."""
    name = page.file.src_uri
    source = ROOT / PAGES[name] if name in PAGES else DOCS / name
    in_site = {(ROOT / path).resolve(): DOCS / name for name, path in PAGES.items()}
    in_site[DOCS / "README.md"] = DOCS / "index.md"

    def link(match: re.Match[str]) -> str:
        text, path, anchor = match[1], match[2], match[3] or ""
        if "://" in path:
            return match[0]
        target = (source.parent / path).resolve()
        target = in_site.get(target, target)
        if target.suffix not in {".md", ".png", ".svg"} or not target.is_relative_to(DOCS):
            return text if text.startswith("`") else f"{text} (`{target.relative_to(ROOT)}`)"
        return f"[{text}]({os.path.relpath(target, (DOCS / name).parent)}{anchor})"

    return LINK.sub(link, markdown)
