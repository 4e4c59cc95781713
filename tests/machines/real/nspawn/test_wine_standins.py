"""Stand-ins of Wine nodes on bad input and in trouble: on Wine, without a cluster."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from container_labs import why_not

from lab._deadline import Deadline
from lab.inventory.inventory import Inventory
from lab.machines.bundle.store import BundleStore
from lab.machines.images.golden import cache_directory
from lab.shells import programs
from lab.windows.wine import IMAGE, standins
from lab.windows.wine.bundle import lacks_powershell, powershell
from lab.windows.wine.template import DRIVE, TREE, run_inside, template

pytestmark = pytest.mark.clusters
SECONDS = 120.0
HELPER = r"""
#include <windows.h>
#include <stdio.h>

#define PIPE L"\\\\.\\pipe\\containerd-containerd"

int wmain(int count, WCHAR **words)
{
    HANDLE pipe;
    char byte;
    DWORD size;

    if (count == 2 && !wcscmp(words[1], L"hold")) { /* the pipe, which has one instance only */
        pipe = CreateNamedPipeW(PIPE, PIPE_ACCESS_DUPLEX, 0, 1, 1, 1, 0, NULL);
        if (pipe != INVALID_HANDLE_VALUE)
            CloseHandle(CreateFileW(L"C:\\held", GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, 0, NULL));
        Sleep(INFINITE);
    }
    if (count == 2 && !wcscmp(words[1], L"read")) { /* the pipe to its end */
        while (WaitNamedPipeW(PIPE, 0) == 0 && GetLastError() != ERROR_SEM_TIMEOUT)
            Sleep(10);
        pipe = CreateFileW(PIPE, GENERIC_READ | GENERIC_WRITE, 0, NULL, OPEN_EXISTING, 0, NULL);
        if (pipe == INVALID_HANDLE_VALUE)
            return 1;
        while (ReadFile(pipe, &byte, 1, &size, NULL) && size)
            putchar(byte);
        puts("end");
        return 0;
    }
    if (count == 2 && !wcscmp(words[1], L"go")) { /* as a program of Go begins */
        char value[256] = "";
        LoadLibraryA("bcryptprimitives.dll");
        GetEnvironmentVariableA("GODEBUG", value, sizeof value);
        puts(value);
        return 0;
    }
    wprintf(L"%ls\n", GetCommandLineW());
    return 0;
}
"""
Run = Callable[[str], str]


def put(scratch: Path, name: str) -> None:
    """Put a compiled stand-in on drive C."""
    shutil.copy(standins.compiled(cache_directory(Inventory())) / name, scratch / TREE / DRIVE)


@pytest.fixture(scope="module")
def below() -> Path:
    """The template and its root file system, as overlayfs names several."""
    if why := why_not():
        pytest.skip(f"no Wine here: {why}")
    cache = cache_directory(Inventory())
    store = BundleStore(cache)
    bundles = [bundle for bundle in store.all() if not lacks_powershell(bundle)]
    roots = sorted((cache / "roots").glob(f"{IMAGE}-*/root"))
    if not bundles or not roots:
        pytest.skip("no bundle with PowerShell, or no image of Wine nodes, was made")
    tree = template(cache, roots[-1], "2022", powershell((store, bundles[-1])), lambda _: None)
    return Path(f"{tree}:{roots[-1]}")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A directory for what a test changes, with the helper on drive C."""
    for name in (TREE, "work", "mount"):
        (tmp_path / name).mkdir()
    drive = tmp_path / TREE / DRIVE
    drive.mkdir(parents=True)
    source = tmp_path / "helper.c"
    source.write_text(HELPER, encoding="ascii")
    command = [standins.COMPILER, "-municode", "-o", str(drive / "helper.exe"), str(source)]
    programs.run("compiling the helper", command, Deadline(SECONDS))
    return tmp_path


@pytest.fixture
def run(below: Path, scratch: Path) -> Run:
    """Run a shell script in the root file system of a Wine node that is not started."""
    return lambda script: run_inside(scratch, below, script, SECONDS)


POWERSHELL = r"C:\windows\system32\WindowsPowerShell\v1.0\powershell.exe"


WINDOWS_POWERSHELL = {
    "-nop -noni -c 1 -f 2": "-NoProfile -NonInteractive -Command 1 -f 2",
    "-exec bypass -enc MQA= -nol": "-ExecutionPolicy bypass -EncodedCommand MQA= -NoLogo",
    "-ep bypass -ec MQA=": "-ExecutionPolicy bypass -EncodedCommand MQA=",
    r"-w hidden /f 'C:\a b.ps1' -v 5": r'-WindowStyle hidden -File "C:\a b.ps1" -v 5',
    "-v 5.1 -i Text -imp -Command -": "-InputFormat Text -Command -",
    "-nop Get-Date -f": "-NoProfile -Command Get-Date -f",
    "-no": "-Command -no",
    "-nologo": "-NoLogo",
    "-": "-Command -",
    "": "",
}
"""Words of powershell.exe, and what PowerShell 7 gets."""


def test_options_of_windows_powershell_are_taken_as_it_takes_them(run: Run, scratch: Path) -> None:
    folder = scratch / TREE / DRIVE / "Program Files/PowerShell/7"
    folder.mkdir(parents=True)
    shutil.copy(scratch / TREE / DRIVE / "helper.exe", folder / "pwsh.exe")
    program = r"C:\windows\system32\WindowsPowerShell\v1.0\powershell.exe"
    printed = run("\n".join(f"wine '{program}' {words}" for words in WINDOWS_POWERSHELL))
    begun = r'"C:\Program Files\PowerShell\7\pwsh.exe"'
    taken = [line.removeprefix(begun).strip() for line in printed.splitlines()]
    assert dict(zip(WINDOWS_POWERSHELL, taken, strict=True)) == WINDOWS_POWERSHELL


ASKED = ("folder", "file", "relative", "absolute", "hard", "none")
"""Names in a folder about which a kubelet asks."""
ASK = r"""
$said = foreach ($name in $args) {
    $item = Get-Item -Force -LiteralPath "C:\q\$name" -ErrorAction SilentlyContinue
    foreach ($question in 'LinkType', 'Target') { "$name $question 0 $($item.$question)" }
}
Set-Content -LiteralPath C:\said -Value $said
"""


def test_a_kubelets_questions_about_links_are_answered_as_by_powershell(
    run: Run, scratch: Path
) -> None:
    """Without PowerShell, which is removed; what is not answered is left to it."""
    folder = scratch / TREE / DRIVE / "q"
    (folder / "folder").mkdir(parents=True)
    (folder / "file").touch()
    (folder / "hard").touch()
    (folder / "other").hardlink_to(folder / "hard")
    (folder / "relative").symlink_to("folder")
    os.symlink("./folder", folder / "absolute")  # noqa: PTH211  Path drops "./", the mark of an absolute one
    (scratch / TREE / DRIVE / "ask.ps1").write_text(ASK, encoding="ascii")
    names = " ".join(ASKED)
    printed = run(
        rf"""
        script -qec "wine '{POWERSHELL}' -NoProfile -File 'C:\ask.ps1' {names}" /dev/null </dev/null
        echo; cat '/{DRIVE}/said'
        rm '/{DRIVE}/Program Files/PowerShell/7/pwsh.exe'
        item="\$ErrorActionPreference = 'Stop'; (Get-Item -Force -LiteralPath \$env:linkpath)"
        for name in {names}; do
            for question in LinkType Target; do
                code=0
                words=$(linkpath="C:/q/$name" wine '{POWERSHELL}' /c "$item.$question") || code=$?
                printf '%s\n' "$name $question $code $words"
            done
        done"""
    )
    lines = [line.strip() for line in printed.splitlines() if line.startswith(ASKED)]
    real, own = lines[: 2 * len(ASKED)], lines[2 * len(ASKED) :]
    assert "relative Target 0 folder" in own
    assert r"absolute Target 0 C:\q\folder" in own
    assert own[:8] == real[:8]
    assert [line.split()[2] for line in own[8:]] == ["1"] * 4


def test_every_service_that_starts_with_the_machine_is_kept(run: Run) -> None:
    """Their program does not exist: the keeper says so of each."""
    started = run(r"""
        {
            printf 'REGEDIT4\r\n\r\n'
            services='HKEY_LOCAL_MACHINE\\System\\CurrentControlSet\\Services'
            for number in $(seq 101 140); do
                printf "[$services\\kept%s]\r\n" $number
                printf '"Type"=dword:10\r\n"Start"=dword:2\r\n"ErrorControl"=dword:1\r\n'
                printf '"ImagePath"="C:\\\\none\\\\kept.exe"\r\n\r\n'
            done
        } >/wine/drive_c/kept.reg
        wine regedit /S 'C:\kept.reg' && wineserver --wait
        wine 'C:\windows\system32\keeper.exe' >/run/keeper &
        for second in $(seq 60); do
            [ "$(grep -c 'kept.*started, error 2' /run/keeper)" -lt 40 ] || break
            sleep 1
        done
        wineserver --kill
        cat /run/keeper""")
    assert {line.split(":")[0] for line in started.split()} >= {f"kept{n}" for n in range(101, 141)}


SERVE = """
import json, sys
sys.path.insert(0, "/usr/lib/hybridlab")
from lab.windows.wine.runtime.service import _Commands
show = "import json, sys; print(json.dumps(sys.argv[1:])); sys.exit(7)"
_Commands({"ctr": (sys.executable, "-c", show)}).serve_forever()
"""


def test_words_of_a_linux_program_may_be_empty_and_its_name_unknown(
    run: Run, scratch: Path
) -> None:
    (scratch / TREE / "serve.py").write_text(SERVE)
    shutil.copytree(Path(standins.__file__).parents[2], scratch / TREE / "usr/lib/hybridlab/lab")
    put(scratch, "ctr.exe")
    printed = run(r"""
        python3 /serve.py &
        for second in $(seq 60); do
            ! python3 -c 'import socket; socket.create_connection(("127.0.0.1", 10011))' || break
            sleep 1
        done 2>/run/errors
        code=0; wine 'C:\ctr.exe' a '' 'b c' '' || code=$?; echo $code
        cp /wine/drive_c/ctr.exe /wine/drive_c/other.exe
        code=0; wine 'C:\other.exe' a || code=$?; echo $code""")
    assert printed.split("\n") == ['["a", "", "b c", ""]', "7", "'other' is none of ctr", "1"]


def test_a_containerd_without_its_pipe_ends_with_the_error(run: Run, scratch: Path) -> None:
    """Another program has the pipe: 231, ERROR_PIPE_BUSY."""
    put(scratch, "containerd.exe")
    state = run(r"""
        wine 'C:\helper.exe' hold &
        for second in $(seq 60); do
            [ ! -e /wine/drive_c/held ] || break
            sleep 1
        done
        wine 'C:\containerd.exe' --register-service
        wine sc start containerd >/run/start || cat /run/start
        for second in $(seq 60); do
            wine sc query containerd >/run/state
            ! grep -q STOPPED /run/state || break
            sleep 1
        done
        wineserver --kill
        cat /run/state""")
    assert "STOPPED" in state
    assert "231" in state


CLOSE = """
import socket
listening = socket.create_server(("127.0.0.1", 10010))
while True:
    connection, _ = listening.accept()
    connection.sendall(b"a")
    connection.close()
"""


def test_a_client_of_containerd_sees_the_end_of_the_runtime_at_once(
    run: Run, scratch: Path
) -> None:
    """Though it writes nothing."""
    put(scratch, "containerd.exe")
    (scratch / TREE / "close.py").write_text(CLOSE)
    printed = run(r"""
        python3 /close.py &
        wine 'C:\containerd.exe' --register-service
        wine sc start containerd >/run/start || cat /run/start
        for time in $(seq 20); do
            timeout 20 wine 'C:\helper.exe' read
        done
        wineserver --kill""")
    assert printed.split() == ["aend"] * 20


def test_each_start_of_windows_counts_and_a_node_has_its_own_uuid(run: Run) -> None:
    uuid = "{11111111-2222-3333-4444-555555555555}"
    key = r"HKLM\System\CurrentControlSet\Control\Session Manager\Memory Management"
    printed = run(rf"""
        look() {{
            wine reg query 'HKLM\System\HardwareConfig' /v LastConfig
            wine reg query '{key}\PrefetchParameters' /v BootId
        }}
        look >/run/before
        wine 'C:\windows\system32\keeper.exe' '{uuid}' &
        for second in $(seq 60); do
            look >/run/after
            ! grep -q 11111111 /run/after || break
            sleep 1
        done
        wineserver --kill
        cat /run/before /run/after""")
    assert [line.split()[-1] for line in printed.splitlines() if "REG_DWORD" in line] == [
        "0x1",
        "0x2",
    ]
    assert uuid in printed


def test_programs_of_go_are_told_not_to_suspend_threads_unless_they_are_told_otherwise(
    run: Run,
) -> None:
    given = ("", "http2debug=1", "asyncpreemptoff=0")
    told = run("\n".join(rf"GODEBUG={value} wine 'C:\helper.exe' go" for value in given))
    off = "asyncpreemptoff=1"
    assert told.split() == [off, f"{off},http2debug=1", "asyncpreemptoff=0"]


SERVER = """
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
print(flush=True)  # it listens
while True:
    query, client = server.recvfrom(512)
    if sys.argv[1] != "none":
        server.sendto(query[:2] + bytes([0x81, 0x80 + int(sys.argv[1])]) + query[4:], client)
"""
"""A DNS server that answers every query with this code, or with nothing."""


@pytest.mark.parametrize(
    ("code", "why"),
    [("3", "Non-existent domain"), ("2", "Server failed"), ("none", "Request timed out")],
)
def test_nslookup_tells_a_name_that_is_not_from_a_server_that_is_silent(
    run: Run, scratch: Path, code: str, why: str
) -> None:
    (scratch / TREE / DRIVE / "server.py").write_text(SERVER, encoding="ascii")
    told = run(f"""
        mkfifo /tmp/listens
        python3 /{DRIVE}/server.py {code} >/tmp/listens &
        read -r _ </tmp/listens
        RES_OPTIONS='timeout:1 attempts:1' wine nslookup.exe web.example. 127.0.0.1 2>&1
        kill $!
    """)
    assert f"*** 127.0.0.1 can't find web.example.: {why}" in told


def test_what_cannot_be_started_is_said_as_windows_says_it(run: Run) -> None:
    program = r"C:\windows\system32\WindowsPowerShell\v1.0\powershell.exe"
    printed = run(rf"""
        rm '/{DRIVE}/Program Files/PowerShell/7/pwsh.exe'
        code=0; wine '{program}' -Command 1 2>&1 || code=$?; echo $code
        code=0; wine 'C:\windows\system32\elevated.exe' nosuch a 2>&1 || code=$?; echo $code""")
    assert printed.splitlines() == [
        "powershell: this image has no PowerShell; Windows nodes have one",
        "1",
        "'nosuch' is not recognized as an internal or external command,",
        "operable program or batch file.",
        "1",
    ]
