"""Paths of Windows and Linux on a Wine node and in its pods. Pure; small programs import it."""

PREFIX = "/wine/drive_c"
"""Drive C, on a node and in a container."""
RUN = "/usr/local/bin/windows-run"
"""Runs a Windows program on Wine, on a node and in every pod image."""
CONSOLE = "/usr/local/bin/windows-console"
"""Runs a command with a console, which PowerShell needs; there, too."""


def linux_path(path: str) -> str:
    r"""A path on drive C (``C:\var\log``) as a path below the prefix; others unchanged.

    Windows' own folders are in lower case there, as Wine makes them.
    """
    forward = path.replace("\\", "/")
    if forward[1:2] == ":":
        if forward[0].lower() != "c":
            return path
        forward = forward[2:]
    elif not path.startswith("\\"):
        return path
    forward = "/" + forward.strip("/")
    if forward.lower().startswith("/windows"):
        forward = forward.lower()
    return PREFIX + ("" if forward == "/" else forward)


def windows_path(path: str) -> str:
    r"""A path below the prefix as one on drive C; others unchanged."""
    if path != PREFIX and not path.startswith(f"{PREFIX}/"):
        return path
    return "C:\\" + path.removeprefix(PREFIX).strip("/").replace("/", "\\")
