"""What nodes on namespaces share with the host, and what not."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

from netns_running import LOST_SECONDS


# SECURITY.md: Nodes on namespaces share the host's files.
def test_a_pod_reads_and_writes_the_hosts_files_as_the_labs_user(overlay, tmp_path):
    (tmp_path / "read").write_text("of the host", encoding="utf-8")
    shell = overlay.shell("worker1-p1", f"cat {tmp_path}/read; touch {tmp_path}/written")
    assert shell == "of the host"
    assert (tmp_path / "written").stat().st_uid == os.geteuid()


# SECURITY.md: Nodes on namespaces share the host's files.
def test_a_pod_has_processes_and_a_run_directory_of_its_own(overlay):
    here = Path("/run") / f"of-the-host-{os.getpid()}"
    assert overlay.shell("worker1-p1", "ls -d /proc/[0-9]* | wc -l") < "9" * 3
    assert f"/proc/{os.getpid()}\n" not in overlay.shell("worker1-p1", "ls -d /proc/[0-9]*")
    overlay.shell("worker1-p1", f"touch {here}")
    assert not here.exists()


# SECURITY.md: A lab on namespaces has no network way out.
def test_no_address_of_the_host_can_be_reached_from_a_lab(overlay):
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        addresses = {"127.0.0.1", socket.gethostbyname(socket.gethostname())}
        for machine in ("worker1-p1", "worker1", "client"):
            for address in addresses:
                assert "host" not in overlay.ask(machine, address, port, seconds=LOST_SECONDS)
        server.settimeout(0)
        try:
            server.accept()
        except BlockingIOError:
            return
        raise AssertionError("something in the lab has reached the host")


# SECURITY.md: A lab on namespaces has no network way out.
def test_a_unix_socket_of_the_host_can_be_reached_unless_it_is_in_run_or_has_no_file(
    overlay, tmp_path
):
    names = {
        "shared": f"{tmp_path}/socket",
        "run": f"/run/of-the-host-{os.getpid()}",
        "abstract": f"\0of-the-host-{os.getpid()}",
    }
    reached = set()
    with ExitStack() as opened:
        for kind, name in names.items():
            if name.startswith("/run") and not os.access("/run", os.W_OK):
                continue
            server = opened.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(name)
            server.listen()
            if not name.startswith("\0"):
                opened.callback(Path(name).unlink)
            code = "import socket, sys; socket.socket(socket.AF_UNIX).connect(eval(sys.argv[1]))"
            command = shlex.join([sys.executable, "-I", "-c", code, repr(name)])
            shell = overlay.shell("worker1-p1", f"{command} 2>/dev/null && echo reached || true")
            reached |= {kind} if shell == "reached\n" else set()
    assert reached == {"shared"}
