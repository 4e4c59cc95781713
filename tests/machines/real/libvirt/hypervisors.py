"""Real libvirtds in addition to this machine's, each as if on its own computer.

Each has its own network, mount, UTS, IPC and process namespaces, an sshd, and a link to the
others and to this machine.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from processes import run_program

from lab._deadline import Deadline
from lab.machines.ssh.transport import ssh_path
from lab.providers.netns.holders import start_time

FILE = ssh_path("~/.ssh/known_hosts")
"""This account's, the only file that ssh reads, whatever ``HOME`` is."""


def trust(address: str, key: str, mark: str) -> None:
    """Trust the key at the address, replacing a line of an earlier run."""
    _change(lambda lines: [*_without(lines, address, mark), f"{address} {key} {mark}"])


def distrust(address: str, mark: str) -> None:
    """Remove the line again, and the file if it is then empty."""
    _change(lambda lines: _without(lines, address, mark))


def distrust_the_dead() -> None:
    """Remove lines of killed runs, which are recognized by their mark."""

    def edit(lines: list[str]) -> list[str]:
        parts = [(line, *line.partition(f" {MARK} ")[1:]) for line in lines]
        return [
            line for line, found, rest in parts if not (found and _of_the_dead(f"{MARK} {rest}"))
        ]

    if FILE.exists():
        _change(edit)


def _without(lines: list[str], address: str, mark: str) -> list[str]:
    return [
        line for line in lines if not (line.startswith(f"{address} ") and line.endswith(f" {mark}"))
    ]


def _change(edit: Callable[[list[str]], list[str]]) -> None:
    FILE.parent.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(FILE.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = edit(FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else [])
        if lines:
            FILE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        else:
            FILE.unlink(missing_ok=True)
    finally:
        os.close(lock)


PROGRAM = Path(__file__).with_name("programs") / "hypervisor.sh"
NEEDED = ("libvirtd", "virtlogd", "sshd", "tini", "unshare", "setpriv", "nsenter", "ssh-keygen")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NAMESPACES = ("net", "mnt", "uts", "ipc", "pid")
MARK = "hybridlab-test-hypervisor"
START_SECONDS = 90.0
"""The first connection to a libvirtd that must still probe QEMU's capabilities took 11 s here."""
END_SECONDS = 20.0


class Missing(Exception):  # noqa: N818  a reason to skip, not a defect
    """This machine lacks something for it."""


@dataclass(frozen=True)
class Uplink:
    """The network between the hypervisors and this machine."""

    bridge: str
    octet: int
    mtu: int

    def address(self, host: int) -> str:
        """An address in 198.18.0.0/15 (RFC 2544), which is not routed."""
        return f"198.18.{self.octet}.{host}"


@dataclass(frozen=True)
class Hypervisor:
    """One that runs."""

    name: str
    address: str
    uri: str
    mtu: int
    outer: int
    """The process on this machine that ends everything when it ends."""
    inner: int
    """The process id of its process 1 on this machine."""
    directory: Path
    port: str
    """This machine's end of its veth pair."""

    def run(self, *command: str) -> str:
        """Run a command there, as if typed at its console; return its output."""
        entry = ("nsenter", f"--target={self.inner}", *(f"--{one}" for one in _ENTERED))
        return _output(*entry, "--", *command)

    def unplug(self) -> None:
        """Cut its link: it keeps running, but is unreachable."""
        _output("ip", "link", "set", self.port, "down")

    def plug(self) -> None:
        """Connect its link again."""
        _output("ip", "link", "set", self.port, "up")

    def entry(self) -> str:
        """Its entry in an inventory file."""
        return (
            f'[hypervisors.{self.name}]\nuri = "{self.uri}"\n'
            f'address = "{self.address}"\nmtu = {self.mtu}\n'
        )


_ENTERED = ("net", "mount", "uts", "ipc", "pid")


def refuse() -> None:
    """Raise ``Missing`` if such hypervisors cannot be created."""
    if os.geteuid() != 0:
        raise Missing("hypervisors in namespaces need root")
    absent = [name for name in NEEDED if shutil.which(name, path=PATH) is None]
    if absent:
        raise Missing(f"not installed: {', '.join(absent)}")


def sweep() -> None:
    """Remove leftovers of a killed run; its processes ended with it."""
    for alias in Path("/sys/class/net").glob("hvup*/ifalias"):
        if _of_the_dead(alias.read_text(encoding="utf-8")):
            _output("ip", "link", "delete", alias.parent.name)
    for owner in Path("/var/tmp").glob(f"{MARK}-*/owner"):
        if _of_the_dead(owner.read_text(encoding="utf-8")):
            shutil.rmtree(owner.parent)
    distrust_the_dead()


def _owner() -> str:
    return f"{MARK} {os.getpid()} {start_time(os.getpid())}"


def _of_the_dead(owner: str) -> bool:
    mark, _, process = owner.strip().partition(" ")
    if mark != MARK:
        return False
    pid, since = process.split()
    return str(start_time(int(pid))) != since


@contextmanager
def uplink(mtu: int = 1400) -> Iterator[Uplink]:
    """A bridge with an address of this machine, with the first free number."""
    sweep()
    made = next(
        (uplink for octet in range(200) if _made(uplink := Uplink(f"hvup{octet}", octet, mtu))),
        None,
    )
    if made is None:
        raise Missing("200 bridges named hvup0, hvup1, ... are there already")
    try:
        _output("ip", "link", "set", made.bridge, "alias", _owner())
        _output("ip", "link", "set", made.bridge, "mtu", str(mtu), "up")
        _output("ip", "address", "add", f"{made.address(1)}/24", "dev", made.bridge)
        yield made
    finally:
        _output("ip", "link", "delete", made.bridge)


def _made(uplink: Uplink) -> bool:
    command = ("ip", "link", "add", uplink.bridge, "mtu", str(uplink.mtu), "type", "bridge")
    return run_program(command, check=False).returncode == 0


@contextmanager
def hypervisor(name: str, network: Uplink, host: int) -> Iterator[Hypervisor]:
    """One hypervisor that answers; it is completely removed afterwards."""
    refuse()
    address = network.address(host)
    directory = Path(tempfile.mkdtemp(prefix=f"{MARK}-", dir="/var/tmp"))
    port = f"{network.bridge}-{host}"
    _furnish(directory)
    outer = _start(directory, name)
    with ExitStack() as held:
        try:
            spaces = _namespaces(outer.pid)
            inner = _inner(outer.pid)
            for kind in spaces:  # keep it open: the kernel reuses the number of an ended one
                held.enter_context(Path(f"/proc/{inner}/ns/{kind}").open("rb"))
            _connect(outer.pid, network, host, port)
            key = (directory / "ssh" / "host_key.pub").read_text(encoding="ascii").strip()
            trust(address, " ".join(key.split()[:2]), _owner())
            uri = f"qemu+ssh://root@{address}/system?keyfile={directory}/key"
            hypervisor = Hypervisor(
                name, address, uri, network.mtu, outer.pid, inner, directory, port
            )
            _await(hypervisor, outer)
            yield hypervisor
        finally:
            distrust(address, _owner())
            _end(outer, port)
            shutil.rmtree(directory, ignore_errors=True)
        _await_end(spaces, port, directory)


def _furnish(directory: Path) -> None:
    for part in (
        "lib",
        "lib/images",
        "lib/qemu",
        "lib/boot",
        "cache",
        "log",
        "log/qemu",
        "etc",
        "ssh",
    ):
        (directory / part).mkdir(mode=0o711, exist_ok=True)
    directory.chmod(0o711)
    _write(directory / "owner", _owner())
    _write(directory / "etc/libvirtd.conf", f'host_uuid = "{uuid.uuid4()}"\nauth_unix_rw = "none"')
    _write(directory / "etc/qemu.conf", 'user = "root"\ngroup = "root"\nsecurity_driver = "none"')
    (directory / "etc/virtlogd.conf").touch()
    for source, target in (
        ("/etc/libvirt/nwfilter", "etc/nwfilter"),
        # Share the cached QEMU capabilities of this machine's libvirtd: probing takes 10 s.
        ("/var/cache/libvirt/qemu/capabilities", "cache/qemu/capabilities"),
    ):
        if Path(source).is_dir():
            shutil.copytree(source, directory / target)
    _make_keys(directory)


def _make_keys(directory: Path) -> None:
    for key in ("key", "ssh/host_key"):
        _output("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", MARK, "-f", directory / key)
    shutil.copy(directory / "key.pub", directory / "ssh/authorized_keys")
    _write(
        directory / "ssh/sshd_config",
        "ListenAddress 0.0.0.0\nHostKey /run/hypervisor/host_key\nPidFile /run/sshd.pid\n"
        "AuthorizedKeysFile /run/hypervisor/authorized_keys\nStrictModes no\nUsePAM no\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\nMaxStartups 100\n"
        "MaxSessions 100\nSubsystem sftp internal-sftp",
    )


def _write(path: Path, text: str) -> None:
    path.write_text(f"{text}\n", encoding="utf-8")


def _start(directory: Path, name: str) -> subprocess.Popen[bytes]:
    command = (
        *("setpriv", "--pdeathsig", "KILL"),
        *("unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--mount-proc"),
        *("--fork", "--kill-child=KILL", "--"),
        *("tini", "--", "sh", str(PROGRAM), str(directory), name),
    )
    with (directory / "story").open("wb") as story:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=story,
            stderr=story,
            start_new_session=True,
            env={"PATH": PATH, "LANG": "C.UTF-8"},
        )


def _namespaces(outer: int) -> dict[str, str]:
    """Its namespaces, once all are created."""
    own = {kind: _link(os.getpid(), kind) for kind in NAMESPACES}

    def look() -> dict[str, str]:
        with suppress(FileNotFoundError, ProcessLookupError, IndexError):
            inner = _inner(outer)
            return {kind: _link(inner, kind) for kind in NAMESPACES}
        return own

    return Deadline(END_SECONDS).wait(
        "waiting for the namespaces of a hypervisor",
        look,
        until=lambda seen: all(seen[kind] != own[kind] for kind in NAMESPACES),
    )


def _inner(outer: int) -> int:
    return int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])


def _link(pid: int, kind: str) -> str:
    return str(Path(f"/proc/{pid}/ns/{kind}").readlink())


def _connect(outer: int, network: Uplink, host: int, port: str) -> None:
    mtu = str(network.mtu)
    _output(
        *("ip", "link", "add", port, "mtu", mtu, "type", "veth"),
        *("peer", "name", "uplink", "mtu", mtu, "netns", str(outer)),
    )
    _output("ip", "link", "set", port, "master", network.bridge, "up")
    for words in (
        f"address add {network.address(host)}/24 dev uplink",
        "link set uplink up",
        f"route add default via {network.address(1)}",
    ):
        _output("nsenter", f"--target={outer}", "--net", "ip", *words.split())


def _await(hypervisor: Hypervisor, outer: subprocess.Popen[bytes]) -> None:
    def look() -> str:
        if outer.poll() is not None:
            story = (hypervisor.directory / "story").read_text(errors="replace")
            raise AssertionError(f"hypervisor '{hypervisor.name}' ended by itself: {story[-2000:]}")
        done = run_program(
            ("virsh", "-q", "-c", hypervisor.uri, "version"), check=False, stdin=subprocess.DEVNULL
        )
        return "" if done.returncode == 0 else done.stderr.strip() or "no answer"

    text = f"waiting for hypervisor '{hypervisor.name}' to answer"
    Deadline(START_SECONDS).wait(text, look, until=lambda seen: not seen, every=0.2)


def _end(outer: subprocess.Popen[bytes], port: str) -> None:
    """End process 1, which ends all others; the network namespace ends with the last of them."""
    with suppress(FileNotFoundError, IndexError, ProcessLookupError):
        os.kill(_inner(outer.pid), signal.SIGKILL)
        outer.wait(END_SECONDS)
    outer.kill()
    outer.wait(END_SECONDS)
    run_program(("ip", "link", "delete", port), check=False)


def _await_end(spaces: dict[str, str], port: str, directory: Path) -> None:
    def look() -> list[str]:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8")
        return [
            *(f"process {pid}" for pid in _processes(spaces)),
            *([port] if Path(f"/sys/class/net/{port}").exists() else []),
            *([f"mount of {directory}"] if str(directory) in mounts else []),
            *([str(directory)] if directory.exists() else []),
        ]

    text = "waiting for all of a hypervisor to go"
    Deadline(END_SECONDS).wait(text, look, until=lambda seen: not seen, every=0.05)


def _processes(spaces: dict[str, str]) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*"):
        # A process that ends meanwhile, or cannot be inspected, is not one of these.
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if any(_link(int(path.name), kind) == space for kind, space in spaces.items()):
                yield int(path.name)


def _output(*command: object) -> str:
    words = [str(word) for word in command]
    done = run_program(words, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: exit {done.returncode}: {done.stderr}")
    return done.stdout
