"""What machines of a lab answered, kept by the command that was run, and answered again.

A script of ``lab/facts`` runs many commands, each introduced by ``ask NAME COMMAND``. The answers
are kept by machine and command, not by script: another script that runs the same commands gets the
same answers. So a recording outlives the records and parsers of the program.
"""

from __future__ import annotations

import json
import lzma
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from lab._deadline import Deadline
from lab.shells.shell import Completed

MARK, END = "@@@", "end"
_SEPARATORS = set(";\n&|()")
_COMMENT = re.compile(r"(?m)\s# .*$")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


@dataclass(frozen=True)
class Ask:
    """One command of a script: its name and its words, perhaps with variables of a loop."""

    name: str
    words: tuple[str, ...]
    always: bool
    """Whether the script runs it on every machine: it is in no block."""

    @cached_property
    def command(self) -> str:
        return shlex.join(self.words)

    def named(self, name: str) -> str | None:
        """The command that has this name in an answer; None if it is another one's."""
        match = re.fullmatch(_pattern(self.name), name)
        return _filled(self.command, match.groupdict()) if match else None

    def ran(self, command: str) -> str | None:
        """The name of a command in an answer; None if it is another one's."""
        if not self.varies:
            return self.name if command == self.command else None
        match = re.fullmatch(_pattern(self.command), command)
        return _filled(self.name, match.groupdict()) if match else None

    @property
    def varies(self) -> bool:
        """Whether the name depends on variables, of a loop."""
        return _VARIABLE.search(self.name) is not None


def _pattern(text: str) -> str:
    """A regular expression in which each variable is a group; quotes around it do not matter."""
    pieces, end, names = [], 0, set[str]()
    for match in _VARIABLE.finditer(text):
        pieces.append(re.escape(text[end : match.start()]))
        name = match[1]
        pieces.append(f"(?P={name})" if name in names else rf"(?P<{name}>[^ ]+?)")
        names.add(name)
        end = match.end()
    return "".join([*pieces, re.escape(text[end:])])


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: values.get(match[1], match[0]), text)


@cache
def asks(script: str) -> tuple[Ask, ...]:
    """The commands of a script, in order."""
    plain = _COMMENT.sub("", script.replace("\\\n", ""))
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=";\n&|()")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    tokens = [*lexer]
    asks, depth = [], 0
    for number, token in enumerate(tokens):
        begins = number == 0 or bool(set(tokens[number - 1]) & _SEPARATORS)
        begins |= tokens[number - 1] in {"then", "do", "else"}
        depth += begins and token in {"if", "for"}
        depth -= begins and token in {"fi", "done"}
        words = list(takewhile(_is_word, tokens[number + 1 :]))
        if begins and token == "ask" and words:
            asks.append(Ask(words[0], tuple(words[1:]), always=not depth))
    return tuple(asks)


def _is_word(token: str) -> bool:
    return not set(token) <= _SEPARATORS


@dataclass(frozen=True)
class Answer:
    """The output of one command."""

    end: str
    """Exit code, or ``absent PROGRAM``."""
    text: str
    complaint: str = ""


def sections(script: str, done: Completed) -> Iterator[tuple[str, Answer]]:
    """Each command of a script with its answer."""
    known, complaints = asks(script), dict(_bodies(done.stderr))
    for name, body in _bodies(done.stdout):
        command = next(filter(None, (ask.named(name) for ask in known)), None)
        assert command is not None, f"no command of the script is named '{name}'"
        text, _, end = body.rpartition(f"{MARK}= ")
        yield command, Answer(end.strip(), text, complaints.get(name, ""))


def _bodies(text: str) -> Iterator[tuple[str, str]]:
    for block in re.split(rf"(?m)^{MARK} ", text)[1:]:
        name, _, body = block.partition("\n")
        if name != END:
            yield name, body


def scripted(script: str, answers: Mapping[str, Answer], place: str) -> Completed:
    """The output of a script whose commands are answered by ``answers``."""
    named, missing = _named(script, tuple(answers))
    assert not missing, (
        f"{place}: no answer to '{missing[0]}' was recorded; if an earlier command printed the "
        "same, see tests/netns/alias_commands.py, else run 'make record'"
    )
    out, complaints = "", ""
    for name, command in named:
        answer = answers[command]
        out += f"\n{MARK} {name}\n{answer.text}{MARK}= {answer.end}\n"
        complaints += f"\n{MARK} {name}\n{answer.complaint}"
    if f"{MARK} {END}" in script:
        out += f"\n{MARK} {END}\n"
    return Completed(0, out, complaints)


@cache
def _named(
    script: str, commands: tuple[str, ...]
) -> tuple[Sequence[tuple[str, str]], Sequence[str]]:
    """The commands of a script with their names, in its order; and those that are not there."""
    named, missing = list[tuple[str, str]](), list[str]()
    for ask in asks(script):
        ran = [(name, command) for command in commands if (name := ask.ran(command))]
        named += ran
        missing += [ask.command] if ask.always and not ran else []
    return named, missing


Places = dict[str, dict[str, list[Answer]]]
"""By place and command, the answers in the order of time."""


def note(places: Places, place: str, command: Sequence[str], done: Completed) -> None:
    """Add what a script answered."""
    there = places.setdefault(place, {})
    for line, answer in sections(command[-1], done):
        there.setdefault(line, []).append(answer)


@dataclass
class RecordedShell:
    """Answers scripts in one place: each command's first time with its first answer, and so on.

    The last answer is repeated. ``healthy`` answers what was not recorded.
    """

    place: str
    places: Places
    healthy: Places
    times: Counter[str] = field(default_factory=Counter)

    def run(self, command: Sequence[str], deadline: Deadline) -> Completed:
        del deadline
        there = {**self.healthy.get(self.place, {}), **self.places.get(self.place, {})}
        now = {}
        for _, line in _named(command[-1], tuple(there))[0]:
            answers = there[line]
            now[line] = answers[min(self.times[line], len(answers) - 1)]
            self.times[line] += 1
        return scripted(command[-1], now, self.place)


class TextPool:
    """Each text once, by its number."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self.texts = list(texts)
        self._numbers = {text: number for number, text in enumerate(self.texts)}

    def number(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]

    def packed(self, places: Places) -> Any:
        return {
            place: {
                line: [
                    [answer.end, *map(self.number, (answer.text, answer.complaint))]
                    for answer in answers
                ]
                for line, answers in commands.items()
            }
            for place, commands in places.items()
        }

    def unpacked(self, places: Any) -> Places:
        return {
            place: {
                line: [Answer(end, self.texts[text], self.texts[more]) for end, text, more in every]
                for line, every in commands.items()
            }
            for place, commands in places.items()
        }


def write_packed(path: Path, content: Any) -> None:
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def read_packed(path: Path) -> Any:
    return json.loads(lzma.decompress(path.read_bytes()))
