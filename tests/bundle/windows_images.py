"""The images for Windows of Kubernetes' tests, as users have them: drive C is ``Files``.

Without Windows itself, which is nobody's to give: nodes on Wine have another base.
"""

import shutil
import zipfile
from pathlib import Path

from bundle_images import TESTS
from bundle_pins import read_pins
from go_programs import module_folder, run
from image_archives import Entry, Image

from lab._deadline import Deadline

BUILD = "10.0.20348.1"
COMPILER = "x86_64-w64-mingw32-gcc"
SEARCHED = (
    "PATH=C:\\bin;C:\\curl;C:\\Windows\\System32;C:\\Windows;C:\\Program Files\\PowerShell\\7;"
)
_NAMES = (
    *("cat", "chmod", "cp", "find", "grep", "ls", "mkdir", "mktemp", "mv", "nc", "rm", "seq", "sh"),
    *("sleep", "tar", "touch", "uname", "wget", "xargs"),
)
"""What ``busybox.exe`` is called as."""


def conformance_images(
    versions: dict[str, str], programs: Path, deadline: Deadline
) -> tuple[Image, ...]:
    """Return the images, filled from the folder ``programs``.

    ``nonroot`` and ``busybox`` are one: upstream's first is nanoserver with its user.
    """
    kubernetes = next(module for module in read_pins().modules if module.name == "kubernetes")
    source = module_folder(kubernetes, deadline)
    pause = programs / "pause.exe"
    version = versions["pause"]
    command = [COMPILER, "-Os", "-s", f"-DVERSION=v{version}", "-o", str(pause)]
    run(
        "building pause for windows",
        [*command, str(source / "build/pause/windows/pause.c")],
        deadline,
        programs,
    )
    porter = source / "test/images/agnhost/porter"
    agnhost = programs / "agnhost.exe"
    tools = _tools(programs)
    server = (
        *tools,
        *(
            Entry(f"/Files/{name}", source=agnhost)
            for name in ("agnhost", "agnhost.exe", "agnhost-2")
        ),
        *(
            Entry(f"/Files/{name}", source=porter / name)
            for name in ("localhost.crt", "localhost.key")
        ),
        Entry("/Files/uploads"),
    )
    return (
        _image(f"{TESTS}/agnhost:{versions['agnhost']}", server, ("/agnhost",), ("pause",)),
        _image(
            f"registry.k8s.io/pause:{version}",
            (Entry("/Files/pause.exe", source=pause),),
            ("/pause.exe",),
        ),
        _image(
            f"{TESTS}/busybox:{versions['busybox']}",
            (*tools, *_powershell(programs)),
            ("cmd.exe", "/s", "/c"),
        ),
        _image(f"{TESTS}/nonroot:{versions['nonroot']}", tools, ("cmd.exe", "/s", "/c")),
    )


def _image(
    name: str,
    entries: tuple[Entry, ...],
    entrypoint: tuple[str, ...],
    command: tuple[str, ...] = (),
) -> Image:
    return Image(
        name, entries, entrypoint, command, folder="", environment=(SEARCHED,), build=BUILD
    )


def _tools(programs: Path) -> tuple[Entry, ...]:
    busybox = programs / "busybox.exe"
    return (
        *(Entry(f"/Files/bin/{name}.exe", source=busybox) for name in _NAMES),
        Entry("/Files/curl/curl.exe", source=busybox),
    )


def _powershell(programs: Path) -> tuple[Entry, ...]:
    """PowerShell's release, if the bundle has it."""
    archive, folder = programs / "powershell.zip", programs / "powershell"
    if not archive.exists():
        return ()
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)
    place = "/Files/Program Files/PowerShell/7"
    policy = '{"Microsoft.PowerShell:ExecutionPolicy": "RemoteSigned"}'
    return (
        Entry(f"{place}/powershell.config.json", text=policy),  # as Windows Server has it
        *(
            Entry(f"{place}/{path.relative_to(folder)}", source=path)
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        ),
    )
