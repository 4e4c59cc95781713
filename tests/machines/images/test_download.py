import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes import left_after_kill

from lab._errors import BrokenError, LabError, PreflightError
from lab.machines.images import download
from lab.machines.images.download import Web, fetch
from lab.shells import programs

CONTENT = bytes(range(256)) * 4096
PLAIN = Web({}, {})


def digest(content: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(download.time, "sleep", lambda _: None)
    monkeypatch.setattr(download, "_BUSY_TRIES", 0)


@dataclass(frozen=True)
class Try:
    """A download that gets its file in the end."""

    asks: list[str | None]
    """The ranges that are asked for."""
    part: bytes = b""
    content: bytes = CONTENT
    algorithm: str | None = "sha256"
    cuts: tuple[int, ...] = ()
    knows_ranges: bool = True


TRIES = {
    "whole": Try([None]),
    "another algorithm": Try([None], algorithm="sha512"),
    "empty": Try([None], content=b""),
    "half is there": Try(["bytes=1000-"], part=CONTENT[:1000]),
    "all is there": Try([], part=CONTENT),
    "half of another file": Try(["bytes=1000-", None], part=b"x" * 1000),
    "half, and no digest": Try([None], part=b"x" * 1000, algorithm=None),
    "half, and no ranges": Try(["bytes=9-", None], part=b"something", knows_ranges=False),
    "broken twice": Try([None, "bytes=300000-", "bytes=700000-"], cuts=(300_000, 400_000)),
}


@pytest.mark.parametrize("case", TRIES.values(), ids=TRIES)
def test_file_arrives_whole_and_goes_on_from_what_is_there(web, tmp_path, case):
    web.files["/disk"] = case.content
    web.cuts["/disk"], web.knows_ranges = list(case.cuts), case.knows_ranges
    if case.part:
        (tmp_path / "disk.part").write_bytes(case.part)
    wanted = case.algorithm and digest(case.content, case.algorithm)
    target, told = tmp_path / "disk", []
    fetch(PLAIN, f"{web.url}/disk", target, wanted, told.append)
    assert target.read_bytes() == case.content
    assert list(tmp_path.iterdir()) == [target]
    assert [asked for _, asked in web.asked] == case.asks
    another = case is TRIES["half of another file"]
    assert any("starting over" in sentence for sentence in told) == another
    fetch(PLAIN, f"{web.url}/disk", target, wanted, told.append)
    assert len(web.asked) == len(case.asks), "what is there is not asked for again"


def test_connection_that_always_breaks_is_given_up_and_its_part_stays(web, tmp_path):
    web.files["/disk"] = CONTENT
    web.cuts["/disk"] = [1000, *([0] * 9)]
    with pytest.raises(BrokenError, match=r"; 1,000 bytes were received"):
        fetch(PLAIN, f"{web.url}/disk", tmp_path / "disk", digest(CONTENT), print)
    assert (tmp_path / "disk.part").stat().st_size == 1000


def test_other_content_is_refused_with_both_digests_and_its_part_removed(web, tmp_path):
    web.files["/disk"] = b"other"
    with pytest.raises(PreflightError) as refused:
        fetch(PLAIN, f"{web.url}/disk", tmp_path / "disk", digest(CONTENT), print)
    assert digest(CONTENT) in str(refused.value)
    assert digest(b"other") in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_missing_file_is_refused_with_the_address(web, tmp_path):
    with pytest.raises(PreflightError, match="404 Not Found") as refused:
        fetch(PLAIN, f"{web.url}/disk", tmp_path / "disk", digest(CONTENT), print)
    assert f"{web.url}/disk" in str(refused.value)


def test_mirror_is_asked_instead_and_named_with_what_was_meant(web, tmp_path):
    web.files["/here/disk"] = CONTENT
    mirrored = Web({"https://vendor.example/": f"{web.url}/here/"}, {})
    fetch(mirrored, "https://vendor.example/disk", tmp_path / "disk", digest(CONTENT), print)
    with pytest.raises(PreflightError, match=r"for https://vendor.example/none"):
        fetch(mirrored, "https://vendor.example/none", tmp_path / "none", "sha256:0", print)


def test_proxy_is_asked_but_not_for_hosts_without(web, tmp_path):
    web.files["http://vendor.example/disk"] = CONTENT
    proxied = Web({}, {"http": web.url, "no_proxy": "127.0.0.1,.local"})
    fetch(proxied, "http://vendor.example/disk", tmp_path / "disk", digest(CONTENT), print)
    assert web.asked == [("http://vendor.example/disk", None)]
    web.files["/near"] = CONTENT
    fetch(proxied, f"{web.url}/near", tmp_path / "near", digest(CONTENT), print)
    assert web.asked[-1] == ("/near", None)


def test_too_little_space_is_reported_before_the_first_byte(web, tmp_path, monkeypatch):
    web.files["/disk"] = CONTENT
    full = os.statvfs(tmp_path)

    class Full:
        f_bavail = 1
        f_frsize = full.f_frsize

    monkeypatch.setattr(download.os, "statvfs", lambda _: Full)
    with pytest.raises(PreflightError, match="MiB are free"):
        fetch(PLAIN, f"{web.url}/disk", tmp_path / "disk", digest(CONTENT), print)
    assert not Path(tmp_path / "disk.part").exists()


def test_account_does_not_follow_a_redirect_to_another_host(web, tmp_path, monkeypatch):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    port = web.server_address[1]
    web.files["/disk"] = CONTENT
    web.leads = {"/near": "/disk", "/far": f"http://localhost:{port}/disk"}
    fetch(PLAIN, f"{web.url}/near", tmp_path / "near", digest(CONTENT), print)
    fetch(PLAIN, f"{web.url}/far", tmp_path / "far", digest(CONTENT), print)
    assert ["Authorization" in headers for headers in web.headers] == [True, True, True, False]


def test_busy_server_is_asked_again_and_given_up_in_the_end(web, tmp_path, monkeypatch):
    web.files["/disk"] = CONTENT
    web.files["/sums"] = b"text"
    monkeypatch.setattr(download, "_BUSY_TRIES", 4)
    web.busy = [(429, "1")]
    (tmp_path / "disk.part").write_bytes(CONTENT[:1000])
    fetch(PLAIN, f"{web.url}/disk", tmp_path / "disk", digest(CONTENT), print)
    assert web.asked == [("/disk", "bytes=1000-")] * 2
    web.busy = [(503, None)]
    assert PLAIN.text(f"{web.url}/sums", "asking") == "text"
    monkeypatch.setattr(download, "_BUSY_SECONDS", 1)
    web.busy = [(429, "9999")] * 9
    with pytest.raises(PreflightError, match="429"):
        fetch(PLAIN, f"{web.url}/disk", tmp_path / "again", digest(CONTENT), print)


OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
HALF = OK + b"Content-Length: %d\r\n\r\n" % len(CONTENT) + CONTENT[:1000]
NO_RANGE = b"HTTP/1.1 416 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda _: NO_RANGE, ": 416 "),
        (lambda asked: NO_RANGE if b"Range" in asked else HALF, ": 416 "),
        (lambda _: HALF, "Cannot resume"),
    ],
    ids=["never", "no parts", "half again and again"],
)
def test_a_server_that_never_comes_to_an_end_is_given_up(rude, tmp_path, answer, words):
    with pytest.raises(LabError, match=words):
        fetch(PLAIN, rude(answer), tmp_path / "disk", digest(CONTENT), print)


@pytest.mark.parametrize("drop", [b"a", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_a_head_that_drips_is_given_up(rude, tmp_path, monkeypatch, drop):
    monkeypatch.setattr(download, "_WINDOW_SECONDS", 1)
    url = rude(lambda _: b"" if drop[:1] == b"H" else b"HTTP/1.1 200 OK\r\nX: ", drop)
    with pytest.raises(PreflightError, match="too slow"):
        fetch(PLAIN, url, tmp_path / "disk", digest(CONTENT), print)


def test_a_small_file_that_drips_is_given_up_and_a_large_one_may_take_its_time(
    rude, tmp_path, monkeypatch
):
    monkeypatch.setattr(download, "_CONNECT_SECONDS", 1)
    monkeypatch.setattr(download, "_FLOOR", 1)
    drop = b"x"
    url = rude(lambda _: OK + b"Content-Length: 30\r\n\r\n", drop)
    with pytest.raises(PreflightError, match="timed out"):
        PLAIN.text(url, "asking")
    fetch(PLAIN, url, tmp_path / "disk", digest(drop * 30), print)


@pytest.mark.parametrize("head", [b"", b"Content-Length: 9000000000\r\n"], ids=["open", "huge"])
def test_a_large_file_that_drips_is_given_up_and_its_part_stays(rude, tmp_path, monkeypatch, head):
    monkeypatch.setattr(download, "_WINDOW_SECONDS", 1)
    monkeypatch.setattr(download, "_free", lambda _: 1 << 40)
    url = rude(lambda _: OK + head + b"\r\n", b"x")
    with pytest.raises(BrokenError, match=r"too slow\. .* bytes were received"):
        fetch(PLAIN, url, tmp_path / "disk", digest(CONTENT), print)
    assert set((tmp_path / "disk.part").read_bytes()) == {ord("x")}


@pytest.mark.parametrize("size", [8, None], ids=["known", "unknown"])
@pytest.mark.parametrize("head", [b"", b"Content-Length: 20\r\n"], ids=["open", "said"])
def test_more_than_there_must_be_is_not_taken(rude, tmp_path, monkeypatch, size, head):
    monkeypatch.setattr(download, "_LARGEST", 8)
    url = rude(lambda _: OK + head + b"\r\n", b"xxxx")
    with pytest.raises(PreflightError, match="or more; the limit is 8"):
        fetch(PLAIN, url, tmp_path / "disk", digest(CONTENT), print, size)
    assert not list(tmp_path.glob("disk*"))


def test_a_list_without_an_end_is_given_up_before_the_disk_is_full(rude, monkeypatch):
    monkeypatch.setattr(download, "_SMALL", 8)
    with pytest.raises(PreflightError, match="or more; the limit is 8"):
        PLAIN.text(rude(lambda _: OK + b"\r\n", b"xxxx"), "asking")


@pytest.mark.parametrize(
    "call", ["Web({}, {}).text(url, '')", "fetch(Web({}, {}), url, x, 'sha256:', print)"]
)
def test_nothing_stays_of_a_download_that_is_killed(rude, tmp_path, call):
    asked: list[bytes] = []

    def answer(request: bytes) -> bytes:
        asked.append(request)
        return OK + b"Content-Length: 4000000\r\n\r\n"

    script = (
        "from pathlib import Path; from lab.machines.images.download import Web, fetch\n"
        f"url = {rude(answer, b'x')!r}; x = Path({str(tmp_path / 'disk')!r}); {call}"
    )
    assert left_after_kill(script, tmp_path / "temporary", lambda: bool(asked)) == []


def test_neither_address_nor_account_is_on_a_command_line(web, tmp_path, monkeypatch):
    commands: list[str] = []
    plain = programs.run

    def run(doing, command, *arguments, **named):
        commands.append(" ".join(command))
        plain(doing, command, *arguments, **named)

    monkeypatch.setattr(programs, "run", run)
    url = web.url.replace("//", "//me:secret@")
    web.files['/a"b\\c[1-2]'] = CONTENT
    fetch(PLAIN, f'{url}/a"b\\c[1-2]', tmp_path / "disk", digest(CONTENT), print)
    assert web.headers[0]["Authorization"] == "Basic bWU6c2VjcmV0"
    assert commands == ["curl --disable --config -"]
    assert not any("secret" in command or "http" in command for command in commands)


def test_a_program_gets_the_inventorys_proxies_and_no_others():
    assert PLAIN.environment() == {}
    told = Web({}, {"https": "http://proxy:1", "no_proxy": "near"}).environment()
    assert {name for name in told if told[name]} == {"https_proxy", "no_proxy"}
    assert told["HTTP_PROXY"] == told["http_proxy"] == told["ALL_PROXY"] == ""


def test_without_curl_the_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "_find", lambda name: None if name == "curl" else "/bin/true")
    with pytest.raises(PreflightError, match="'curl' not found") as refused:
        fetch(PLAIN, "http://127.0.0.1:9/disk", tmp_path / "disk", digest(b""), print)
    assert refused.value.hint == "apt-get install curl"
