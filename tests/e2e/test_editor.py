"""A real yaml-language-server on a file of `lab new`: it completes keys and marks errors."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

NPM, NODE = shutil.which("npm"), shutil.which("node")
VERSION = "2.0.0"
SECONDS = 300


class Server:
    """A language server, spoken to as an editor does."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.number = 0
        root = {"processId": None, "rootUri": None, "capabilities": {}}
        self.ask("initialize", root)
        self.send({"method": "initialized", "params": {}})

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        length = 0
        while line := self.process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        message = json.loads(self.process.stdout.read(length))
        if "method" in message and "id" in message:  # the server asks for its settings
            items = message["params"].get("items", []) if message.get("params") else []
            self.send({"id": message["id"], "result": [None for _ in items]})
        return message

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next message that is wanted; the test's own deadline ends it."""
        while not wanted(message := self.read()):
            pass
        return message

    def ask(self, method: str, params: object) -> Any:
        self.number += 1
        number = self.number
        self.send({"id": number, "method": method, "params": params})
        return self.until(lambda message: message.get("id") == number and "method" not in message)[
            "result"
        ]

    def diagnose(self, file: Path) -> list[dict[str, Any]]:
        """Open a file; what the server finds in it."""
        document = {"uri": file.as_uri(), "languageId": "yaml", "version": 1}
        text = file.read_text()
        opened = {"textDocument": {**document, "text": text}}
        self.send({"method": "textDocument/didOpen", "params": opened})
        published = self.until(
            lambda message: (
                message.get("method") == "textDocument/publishDiagnostics"
                and message["params"]["uri"] == file.as_uri()
            )
        )
        diagnostics: list[dict[str, Any]] = published["params"]["diagnostics"]
        return diagnostics

    def complete(self, file: Path, line: int, character: int) -> set[str]:
        place = {"line": line, "character": character}
        params = {"textDocument": {"uri": file.as_uri()}, "position": place}
        answer = self.ask("textDocument/completion", params)
        items = answer["items"] if isinstance(answer, dict) else answer
        return {item["label"] for item in items}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if NPM is None or NODE is None:
        pytest.skip("npm is not installed")
    place = tmp_path_factory.mktemp("npm")
    words = [NPM, "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(place)]
    done = subprocess.run(
        [*words, f"yaml-language-server@{VERSION}"],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"npm cannot install yaml-language-server: {done.stderr[-300:]}")
    script = place / "node_modules/yaml-language-server/bin/yaml-language-server"
    started = Server([NODE, str(script), "--stdio"])
    with started.process:
        yield started
        started.process.kill()


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("options", [(), ("--schema",)], ids=["installed", "beside it"])
def test_a_new_scenario_is_completed_and_checked(server, lab, tmp_path, options):
    file = tmp_path / "mine.yaml"
    lab.run("new", "mine", "-o", str(file), *options)
    assert (tmp_path / "scenario.schema.json").is_file() == bool(options)
    assert server.diagnose(file) == []
    text = file.read_text()
    lines = text.splitlines()
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(text.replace("pod_cidr:", "pod_cird:") + "ser\n")
    errors = server.diagnose(wrong)
    line = next(number for number, row in enumerate(lines) if "pod_cidr:" in row)
    assert line in {error["range"]["start"]["line"] for error in errors}, errors
    assert "pod_cird" in json.dumps(errors)
    assert {"matrix", "failover"} & server.complete(wrong, len(lines), 0)
