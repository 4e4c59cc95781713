"""Programs of this host's Debian packages for an image, with every library they load."""

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from go_programs import run
from image_archives import Entry

from lab._deadline import Deadline
from lab._errors import PreflightError

PACKAGES = ("iptables", "nftables", "conntrack", "netbase", "coreutils", "dash")
"""Packages whose programs are copied into images."""
PROTOCOLS = "/etc/protocols"
CLIENT_PACKAGES = (
    *("coreutils", "dash", "curl", "bind9-dnsutils", "netcat-openbsd", "iproute2"),
    *("grep", "hostname", "libc-bin", "mawk", "wget"),
)
"""Packages for the images of Kubernetes' own tests."""
CALICO_PACKAGES = (
    *("ipset", "iproute2", "bash", "sed", "debianutils", "libreadline8"),  # libreadline8: birdc
    *PACKAGES,
)
"""Packages for the image of Calico's node, in addition to :data:`UNPACKED`."""
UNPACKED = ("bird", "runit")
"""Packages that are only unpacked: bird 1.6 would replace bird 2, and runit is an init."""
_LIBRARY = re.compile(r"^\s+(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)


def libraries(ldd: str) -> tuple[str, ...]:
    """Sorted paths of the libraries that ``ldd`` lists; the vDSO has none."""
    return tuple(sorted(set(_LIBRARY.findall(ldd))))


def with_libraries(programs: dict[str, Path], deadline: Deadline) -> tuple[Entry, ...]:
    """Return ``programs`` (path in the image, path here) and the libraries of all of them."""
    for path in programs.values():
        if not path.is_file():
            hint = f"apt-get install {' '.join(PACKAGES)}"
            raise PreflightError(f"writing an image with {path}", "there is no such file", hint)
    command = ["ldd", *map(str, programs.values())]
    told = run("looking for the libraries of an image", command, deadline, Path("/"))
    found = {path: Path(path) for path in libraries(told)}
    return tuple(Entry(path, source=source) for path, source in (found | programs).items())


def packet_filters(deadline: Deadline) -> tuple[Entry, ...]:
    """iptables in both forms, nft and conntrack; plain ``iptables`` is the nft form.

    Upstream's image chooses between the forms when it starts. Debian guests have the nft
    form on the host, and all programs that write rules on a node must use the same form.

    Without ``/etc/protocols`` nft lists protocols as numbers. kube-proxy then takes the elements
    of its own maps for foreign ones, and empties the maps at a restart and at each hourly sync.
    """
    forms = {"nft": "xtables-nft-multi", "legacy": "xtables-legacy-multi"}
    programs = {f"/usr/sbin/{form}": Path("/usr/sbin") / form for form in (*forms.values(), "nft")}
    programs["/usr/sbin/conntrack"] = Path("/usr/sbin/conntrack")
    extensions = Path("/usr/lib/x86_64-linux-gnu/xtables")
    programs |= {str(path): path for path in sorted(extensions.glob("*.so"))}
    links = [
        Entry(f"/usr/sbin/{family}{ending}{tail}", link=forms[form])
        for family in ("iptables", "ip6tables")
        for tail in ("", "-save", "-restore")
        for ending, form in (("", "nft"), ("-nft", "nft"), ("-legacy", "legacy"))
    ]
    protocols = Entry(PROTOCOLS, source=Path(PROTOCOLS), mode=0o644)
    return (*with_libraries(programs, deadline), *links, protocols)


def shell(deadline: Deadline) -> tuple[Entry, ...]:
    """Return sh and the few programs that manifests and probes call in a container."""
    names = ("cat", "cp", "date", "env", "id", "ls", "mkdir", "rm", "sleep", "touch", "uname")
    programs = {f"/bin/{name}": Path("/bin") / name for name in names}
    return with_libraries(programs | {"/bin/sh": Path("/bin/dash")}, deadline)


def clients(deadline: Deadline) -> tuple[Entry, ...]:
    """Return what Kubernetes' own tests call in a container, with a shell."""
    programs = {f"/usr/bin/{name}": Path("/usr/bin") / name for name in _CLIENTS}
    programs |= {"/usr/bin/nc": Path("/usr/bin/nc.openbsd"), "/usr/bin/awk": Path("/usr/bin/mawk")}
    return (*shell(deadline), *with_libraries(programs, deadline))


_CLIENTS = (
    *("curl", "dd", "dig", "getent", "grep", "hostname", "nslookup", "seq"),
    *("ss", "tail", "wc", "wget"),
)


def unpacked(into: Path, deadline: Deadline) -> dict[str, Path]:
    """Download :data:`UNPACKED` and unpack them below ``into``; package to its root."""
    roots = {}
    for name in UNPACKED:
        folder = into / name
        folder.mkdir(parents=True)
        run(f"downloading {name}", ["apt-get", "download", "-q", name], deadline, folder)
        (package,) = folder.glob("*.deb")
        roots[name] = folder / "root"
        command = ["dpkg-deb", "--extract", str(package), str(roots[name])]
        run(f"unpacking {name}", command, deadline, folder)
    return roots


def candidates(names: Iterable[str], deadline: Deadline) -> dict[str, str]:
    """Return the versions of the packages that apt would download."""
    found = {}
    for name in names:
        asked = ["apt-cache", "show", "--no-all-versions", name]
        told = run(f"looking for {name}", asked, deadline, Path("/"))
        found[name] = next(
            line.split(": ", 1)[1] for line in told.splitlines() if line.startswith("Version: ")
        )
    return found


def installed(packages: Iterable[str], deadline: Deadline) -> dict[str, str]:
    """Return the versions of the installed packages among ``packages``."""
    form = "${Package} ${db:Status-Status} ${Version}\n"
    listed = ["dpkg-query", "--show", f"--showformat={form}"]
    told = run("looking for Debian packages", listed, deadline, Path("/"))
    rows = (line.split(" ", 2) for line in told.splitlines())
    has = {row[0]: row[2] for row in rows if len(row) == 3 and row[1] == "installed"}
    return {name: has[name] for name in packages if name in has}


def install(packages: tuple[str, ...], deadline: Deadline) -> dict[str, str]:
    """Install the missing ones of ``packages``, and return all versions.

    Raises
    ------
    PreflightError
        Some are missing, and this is not root or not Debian.

    """
    text = "looking for the Debian packages that a bundle is made with"
    if not shutil.which("dpkg-query"):
        raise PreflightError(text, "this is not Debian", "a Debian or Ubuntu machine")
    has = installed(packages, deadline)
    missing = [name for name in packages if name not in has]
    if not missing:
        return has
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    if os.geteuid() != 0:
        happened = f"missing: {', '.join(missing)}"
        raise PreflightError(text, happened, f"sudo {' '.join(command)}")
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    run(f"installing {', '.join(missing)}", command, deadline, Path("/"), quiet)
    return installed(packages, deadline)
