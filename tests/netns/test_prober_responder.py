"""The responder as a process: curl, DNS by hand, its start and its end."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from prober_world import DNS_RECORDS, RESPONDER, B, World

ENTRY = {"namespace": "b", "name": "b", "tcp": [8080], "udp": [8080], "dns": DNS_RECORDS}


@pytest.fixture(scope="module")
def world(new_lab):
    world = World(new_lab("world"))
    try:
        world.build()
        world.respond("responder", [ENTRY])
        yield world
    finally:
        world.end()


def curl(world: World, *options: str) -> str:
    words = ("ip", "netns", "exec", "a", "curl", "-s", "-m", "5", *options)
    done = subprocess.run(world.command(*words), check=True, capture_output=True, text=True)
    return done.stdout


def test_curl_gets_the_names_of_server_and_client(world):
    document = json.loads(curl(world, f"http://{B}:8080/"))
    assert document["endpoint"] == "b"
    assert document["client"].startswith("10.1.0.2:")


def test_curl_gets_its_mebibyte_back_and_not_a_byte_more(world):
    world.run("head -c 1048576 /dev/urandom > /run/body; head -c 1048577 /dev/zero > /run/more")
    curl(world, "--data-binary", "@/run/body", "-o", "/run/echo", f"http://{B}:8080/echo")
    world.run("cmp /run/body /run/echo")
    refused = ("--data-binary", "@/run/more", "-o", "/dev/null", "-w", "%{http_code}")
    assert curl(world, *refused, f"http://{B}:8080/echo") == "413"


@pytest.mark.parametrize("tcp", [False, True])
def test_a_strange_resolver_is_answered(world, tcp):
    script = f"""
import dns.message, dns.query
ask = dns.query.{"tcp" if tcp else "udp"}
for name in ("else.where.", "nobody."):
    answer = ask(dns.message.make_query(name, "A"), "{B}", timeout=5)
    print(answer.rcode(), *[record for one in answer.answer for record in one])
"""
    words = ("ip", "netns", "exec", "a", sys.executable, "-c", script)
    done = subprocess.run(world.command(*words), check=True, capture_output=True, text=True)
    assert done.stdout == "0 10.9.9.9\n3\n"


def started(world: World, config: str) -> subprocess.CompletedProcess[str]:
    world.run(f"printf '%s' '{config}' > /run/other.json")
    words = (sys.executable, "-I", str(RESPONDER), "/run/other.json")
    return subprocess.run(world.command(*words), check=False, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (json.dumps([ENTRY]), "Address already in use: \"TCP port 8080 in namespace 'b'\""),
        (json.dumps([ENTRY | {"namespace": "gone"}]), "/run/netns/gone"),
        ('[{"namespace": "b"}]', "KeyError"),
        ("no JSON", "JSONDecodeError"),
    ],
)
def test_a_responder_that_cannot_start_reports_why_and_never_ready(world, config, told):
    done = started(world, config)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("responder: cannot start: ")
    assert told in done.stderr


def test_sigterm_ends_it_and_it_can_be_started_again_at_once(world):
    entry = {"namespace": "c", "name": "c", "tcp": [8080], "udp": [8080], "dns": None}
    for _ in range(2):
        world.respond("again", [entry])
        assert json.loads(curl(world, "http://10.1.0.4:8080/"))["endpoint"] == "c"
        world.stop("again", sign="TERM")
