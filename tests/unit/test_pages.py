"""Pages and SECURITY.md: what they quote exists, and each paragraph of the latter has its test."""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pages import BLOCK, OTHER, PAGES, REASONS, ROOT, SHELL, blocks
from processes import run_program

from lab.cli.main import command as main_command

README = ROOT / "README.md"
OF_PYTEST = frozenset({"-k", "-m", "-x", "-q", "--lf", "--collect-only"})
REST_IS_A_COMMAND = frozenset({"exec", "ssh"})


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w -]", "", heading.lower()) for heading in headings)
    return {one.replace(" ", "-") for one in plain}


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))


@pytest.mark.room
def test_every_link_leads_to_a_file_and_a_heading():
    for page, link in ((source, link) for source in PAGES for link in links(source)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), (page, link)
        assert not anchor or anchor in anchors(target), (page, link)


def test_every_block_names_its_language_and_every_command_is_run_or_has_a_reason_not_to():
    for page in PAGES:
        beside = BLOCK.sub("", page.read_text(encoding="utf-8"))
        assert not re.findall(r"^(?: {4}| *```|<!-- (?:not|first)).*", beside, re.MULTILINE), page
        for block in blocks(page):
            assert block.language in SHELL | OTHER, (page, block.text)
            assert block.reason in {None, *REASONS}, (page, block.reason)
            assert not block.reason or next(block.commands(), None), (page, block.text)
            if block.language not in SHELL:
                assert not re.search(r"^(?:\$ )?(?:lab|make) [a-z]", block.text, re.MULTILINE), page


def quoted_commands(page: Path) -> Iterator[list[str]]:
    """The words after ``lab`` of every command in a block or a code span."""
    lines = [command.line for block in blocks(page) for command in block.commands()]
    text = " ".join(BLOCK.sub("", page.read_text(encoding="utf-8")).split())
    for line in (*lines, *re.findall(r"`([^`]+)`", text)):
        if match := re.match(r"(?:\.venv/bin/)?lab ([a-z-].*)", line):
            yield shlex.split(re.split(r" #| &&|;| \||>", match[1])[0].replace("'", ""))


@pytest.mark.room
def test_every_quoted_command_exists_and_has_its_options():
    for page, words in ((source, words) for source in PAGES for words in quoted_commands(source)):
        if not re.fullmatch(r"[a-z][a-z-]+", words[0]):
            continue  # "lab COMMAND --help", "lab --version"
        command, rest = main_command.get_command(click.Context(main_command), words[0]), words[1:]
        assert command, (page, words)
        if isinstance(command, click.Group) and rest:
            command, rest = command.get_command(click.Context(command), rest[0]), rest[1:]
            assert command, (page, words)
        known = {name for param in command.params for name in (*param.opts, "--help")}
        known |= OF_PYTEST if words[0] in {"check", "run", "test"} else set()
        if words[0] in REST_IS_A_COMMAND:
            rest = rest[:2]
        unknown = {one.strip("[]") for one in rest if one.strip("[").startswith("-")} - known
        assert not unknown - {"--", "-"}, (page, words)


@pytest.mark.room
def test_reference_is_as_the_code_has_it():
    command = [sys.executable, ROOT / "tools/reference.py", "--check"]
    done = run_program(command, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_site_builds_strictly(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", tmp_path]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = run_program(command, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "tutorial/first-lab.html").exists()
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert 'href="copy.css"' in index
    shown = re.findall(r'src="([\w/.]+svg)"', index)
    assert shown
    assert all((tmp_path / name).exists() for name in shown)


def test_readme_is_short_and_its_first_screen_fits_80_by_24():
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines[:24])) <= 80


def test_verification_is_short_and_every_row_has_a_command_and_a_date():
    text = (ROOT / "docs/verification.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 1500
    lines = re.findall(r"^\|(.*)\|$", text, re.MULTILINE)
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    rows = [row for row in rows if row[0] not in {"capability, and its command", "---"}]
    assert rows
    for row in rows:
        capability, date, _ = row
        _, command = capability.split("<br>")
        assert "`" in command or command == "by hand", row
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", date), row


def test_changelog_has_every_change_in_a_group_of_a_release():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, *releases = re.split(r"^## ", text, flags=re.MULTILINE)
    assert releases
    for release in releases:
        head, *groups = re.split(r"^### ", release, flags=re.MULTILINE)
        assert not re.search(r"^- ", head, re.MULTILINE), head
        assert [group.splitlines()[0] for group in groups] == ["New", "Changed", "Mended"]


def test_dates_are_written_as_year_month_day():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"(?<![\d.])\d{1,2}\.1[0-2]\.(?!\d)", text), page


@pytest.mark.room
def test_index_of_decisions_has_every_page_with_its_number_title_and_state():
    folder = ROOT / "docs/decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    row = re.compile(
        r"^\| (\d+) \| \[(.+)\]\((0\d+-[-\w]+\.md)\) \|(?: \d{4}-\d\d-\d\d \|){2} (.+) \|$",
        re.MULTILINE,
    )
    rows = {
        name: (f"# {number}. {title}", state) for number, title, name, state in row.findall(index)
    }
    for path in folder.glob("0*.md"):
        title, state = rows.pop(path.name)
        assert path.read_text(encoding="utf-8").splitlines()[0] == title
        assert re.match(r"holds\b|(as the default )?superseded by \[|no longer holds", state), path
    assert not rows


def test_index_of_pages_has_every_page_but_scenarios_and_decisions():
    docs = ROOT / "docs"
    index = (docs / "README.md").read_text(encoding="utf-8")
    for page in docs.glob("**/*.md"):
        name = str(page.relative_to(docs))
        if not name.startswith(("scenarios/", "decisions/")) and name != "README.md":
            assert f"]({name})" in index, name


@pytest.mark.room
def test_every_path_of_the_repository_that_a_page_names_exists():
    path = r"(?<!\S)(?:benchmarks|docs|examples|images|lab|scenarios|tests|tools)/[-\w./*]*(?!\S)"
    for page in PAGES:
        for code in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")):
            for name in re.findall(path, code):
                assert any(ROOT.glob(name.rstrip("/"))), (page, name)


def paragraphs() -> set[str]:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    return set(re.findall(r"^- \*\*(.+?)\*\*", text, re.MULTILINE))


def named() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        found.update(re.findall(r"^# SECURITY\.md: (.+)$", text, re.MULTILINE))
    return found


@pytest.mark.room
def test_every_paragraph_has_a_test_and_every_test_its_paragraph():
    assert paragraphs()
    assert named() == paragraphs()
