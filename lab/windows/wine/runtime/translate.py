"""The CRI's messages between a Windows kubelet and Linux's containerd. Pure.

Field numbers are those of the CRI (k8s.io/cri-api, pkg/apis/runtime/v1/api.proto). A path on drive
C is a file of the node's prefix on this side, and of the image's prefix in a container; a command
is a Windows program, which Wine runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lab.providers.netns import windows
from lab.topology.intent import Resolver
from lab.windows.wine.runtime import wire
from lab.windows.wine.runtime.places import PREFIX, RUN, linux_path, windows_path
from lab.windows.wine.runtime.wire import Message

_HOSTS = "/windows/system32/drivers/etc/hosts"
_NODE_MODE, _CONTAINER_MODE = 2, 1
"""NamespaceMode: of the node, of the container alone."""


@dataclass(frozen=True, slots=True)
class SandboxConfig:
    """Field numbers of PodSandboxConfig."""

    log_directory: int = 3
    resolver: int = 4
    annotations: int = 7
    linux: int = 8
    windows: int = 9


_SANDBOX = SandboxConfig()
_LINUX_SECURITY, _NAMESPACES = 2, 1
"""LinuxPodSandboxConfig.security_context, and its namespace_options."""
_WINDOWS_SECURITY, _HOST_PROCESS = 1, 3
"""WindowsPodSandboxConfig.security_context, and its host_process."""
_ASKED = "hybridlab/network"
"""Annotation of a sandbox: the network that the kubelet asked for. Windows has no node's network
for a pod that is no host process, and a kubelet whose pod has another makes it again for ever."""
_USER, _CREDENTIALS = 1, 2
"""Of the security context: run_as_username, credential_spec."""
USERS = frozenset({"containeradministrator", "containeruser", "nt authority\\system"})
"""The users that are taken: Wine has one, and it may do everything in its container. Windows' least
user is taken as well: it is what images for Windows have, and what Pod Security asks for."""
_HANDLER, _PROCESS_ISOLATED = 2, "runhcs-wcow-process"
"""RunPodSandboxRequest.runtime_handler; containerd's on Windows, whose containers are processes."""


def sandbox_config(config: Message) -> Message:
    """PodSandboxConfig: log folder, and namespaces in Linux's words.

    Raises ValueError for a user whom Wine has not: on Windows, too, a sandbox fails by its pod's.
    """
    for own in _messages(config, _SANDBOX.windows):
        for security in _messages(own, _WINDOWS_SECURITY):
            if why := user_refusal(security):
                raise ValueError(why)
    network = _NODE_MODE if _is_host_process(config) else 0
    options = (wire.Field(1, network), wire.Field(2, _CONTAINER_MODE))
    security = wire.with_message((), _NAMESPACES, options)
    linux = wire.with_message((), _LINUX_SECURITY, security)
    folder = wire.text(config, _SANDBOX.log_directory)
    if folder:
        config = wire.with_texts(config, _SANDBOX.log_directory, (linux_path(folder),))
    note = wire.with_texts(wire.with_texts((), 1, (_ASKED,)), 2, (_asked_network(config),))
    config = wire.without(config, _SANDBOX.windows)
    config = (*config, wire.Field(_SANDBOX.annotations, wire.encode(note)))
    return wire.with_message(config, _SANDBOX.linux, linux)


def _asked_network(config: Message) -> str:
    """The NamespaceMode that the kubelet asks for."""
    for linux in _messages(config, _SANDBOX.linux):
        for security in _messages(linux, _LINUX_SECURITY):
            for options in _messages(security, _NAMESPACES):
                return next((str(each.value) for each in options if each.number == 1), "0")
    return "0"


def _is_host_process(config: Message) -> bool:
    return any(
        inner.number == _HOST_PROCESS and bool(inner.value)
        for windows in _messages(config, _SANDBOX.windows)
        for security in _messages(windows, _WINDOWS_SECURITY)
        for inner in security
    )


def _messages(message: Message, number: int) -> tuple[Message, ...]:
    return tuple(
        wire.decode(field.value)
        for field in message
        if field.number == number and isinstance(field.value, bytes)
    )


_COMMAND, _FOLDER, _ENVIRONMENT, _MOUNTS, _LOG, _LINUX, _WINDOWS = 3, 5, 6, 7, 11, 15, 16
"""Field numbers of ContainerConfig."""
_ROOT_OF_HOST_PROCESS: Message = (
    wire.Field(1, b"CONTAINER_SANDBOX_MOUNT_POINT"),
    wire.Field(2, b"C:\\hpc"),
)
"""The variable with which containerd tells it, a KeyValue."""
_INSIDE, _OUTSIDE = 1, 2
"""Field numbers of Mount: container_path and host_path."""
_NAMESPACE_OPTIONS, _MASKED, _READ_ONLY = 3, 13, 14
"""Field numbers of LinuxContainerSecurityContext."""
MASKED = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
)
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
"""What a kubelet on Linux hides from containers, or protects (k8s.io/kubernetes, securitycontext).

Without it a program in a pod could write the kernel's settings, which are the host's."""


def container_config(config: Message) -> Message:
    r"""ContainerConfig: command, folder, mounts and log file in Linux's words.

    A container of a user whom Wine has not is made and does not start, as on Windows: its command
    is the sentence that says why. A host process sees its image's files in ``C:\hpc``, too.

    Raises ValueError for what a Wine node cannot keep.
    """
    securities = [each for own in _messages(config, _WINDOWS) for each in _messages(own, 2)]
    refusals = [why for each in securities if (why := user_refusal(each))]
    command = wire.texts(config, _COMMAND)
    if refusals or command:
        config = wire.with_texts(config, _COMMAND, tuple(refusals) or (RUN, *command))
    if any(field.number == _HOST_PROCESS and field.value for each in securities for field in each):
        config = (*config, wire.Field(_ENVIRONMENT, wire.encode(_ROOT_OF_HOST_PROCESS)))
    folder = wire.text(config, _FOLDER)
    if folder:
        config = wire.with_texts(config, _FOLDER, (linux_path(folder),))
    log = wire.text(config, _LOG)
    if log:
        config = wire.with_texts(config, _LOG, (log.replace("\\", "/"),))
    mounts = [place for mount in _messages(config, _MOUNTS) for place in _mount(mount)]
    # Wine asks Linux for names, so the pod's hosts file is Linux's, too
    hosts = [
        wire.with_texts(mount, _INSIDE, ("/etc/hosts",))
        for mount in mounts
        if wire.text(mount, _INSIDE) == PREFIX + _HOSTS
    ]
    config = wire.without(config, _MOUNTS, _WINDOWS, _LINUX)
    for mount in (*mounts, *hosts):
        config = (*config, wire.Field(_MOUNTS, wire.encode(mount)))
    own = (wire.Field(2, _CONTAINER_MODE),)
    security = wire.with_message((), _NAMESPACE_OPTIONS, own)
    security = wire.with_texts(security, _MASKED, MASKED)
    security = wire.with_texts(security, _READ_ONLY, READ_ONLY)
    return wire.with_message(config, _LINUX, wire.with_message((), 2, security))


def user_refusal(security: Message) -> str:
    """Why Wine has not the user of a security context; empty if it has.

    So nobody believes in rights that a program lacks. The last words are Windows'.

    Raises ValueError for a domain's account.
    """
    user = wire.text(security, _USER)
    if wire.text(security, _CREDENTIALS):
        raise ValueError("gmsaCredentialSpec cannot be kept: a Wine node is in no domain")
    if not user or user.lower() in USERS:
        return ""
    return (
        f"runAsUserName '{user}' cannot be kept: on a Wine node every program runs as "
        "ContainerAdministrator. The user name or password is incorrect."
    )


def _mount(mount: Message) -> Iterator[Message]:
    """The mount; a second one if its path has no drive, as that of a service account's token.

    Windows takes such a path for one on drive C, and Wine for Linux's.
    """
    inside, given = wire.text(mount, _INSIDE), wire.text(mount, _OUTSIDE)
    outside = linux_path(given.replace("/", "\\"))
    is_on_drive = outside == PREFIX or outside.startswith(f"{PREFIX}/")
    if not is_on_drive or given.startswith("\\\\"):
        raise ValueError(f"mount {inside}: {given} is not on drive C, and a Wine node has no other")
    on_drive = (linux_path(inside.replace("/", "\\", 1)),) if inside.startswith("/") else ()
    for path in (linux_path(inside), *on_drive):
        yield wire.with_texts(wire.with_texts(mount, _INSIDE, (path,)), _OUTSIDE, (outside,))


_SERVERS, _SEARCH, _OPTIONS = 1, 2, 3
"""Field numbers of DNSConfig."""


def plugin_search(configuration: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The suffixes that a CNI configuration gives to pods; None if they get the kubelet's."""
    plugin = next(iter(configuration.get("plugins") or ()), configuration)
    if (plugin.get("capabilities") or {}).get("dns"):
        return None
    for key, value in plugin.items():
        if key.lower() == "dns":
            lists = (names for name, names in value.items() if name.lower() == "search")
            return tuple(next(lists, ()))
    return None


def with_resolver(data: bytes, search: tuple[str, ...] | None) -> bytes:
    """A request RunPodSandbox with a Windows pod's resolver.

    ``search``: of :func:`plugin_search`. The rule of Windows pods is the namespaces provider's. A
    host process has the node's resolver file, which containerd gives to who names none.
    """

    def resolver(given: Message) -> Message:
        kept = search if search is not None else wire.texts(given, _SEARCH)
        limited = windows.limit_suffixes(Resolver("", kept, 1))
        # the C library completes names with dots too, which Windows does not: a suffix with which
        # only those become names of Services is left out
        completing = tuple(suffix for suffix in limited.search if not suffix.startswith("svc."))
        made = wire.with_texts(given, _SEARCH, completing)
        return wire.with_texts(made, _OPTIONS, (f"ndots:{limited.ndots}",))

    def config(given: Message) -> Message:
        if _is_host_process(given):
            return wire.without(given, _SANDBOX.resolver)
        return wire.edited(given, _SANDBOX.resolver, resolver)

    return wire.encode(wire.edited(wire.decode(data), 1, config))


def mount_sources(data: bytes) -> tuple[str, ...]:
    """Where the mounts of a request CreateContainer come from, on the node's Linux."""
    configs = _messages(wire.decode(data), 2)
    mounts = (mount for config in configs for mount in _messages(config, _MOUNTS))
    return tuple(dict.fromkeys(wire.text(mount, _OUTSIDE) for mount in mounts))


def _run_sandbox(request: Message) -> Message:
    if wire.text(request, _HANDLER) == _PROCESS_ISOLATED:
        request = wire.without(request, _HANDLER)
    return wire.edited(request, 1, sandbox_config)


def _create_container(request: Message) -> Message:
    request = wire.edited(request, 2, container_config)
    return wire.edited(request, 3, sandbox_config)


def _execute(request: Message) -> Message:
    return wire.with_texts(request, 2, (RUN, *wire.texts(request, 2)))


def _on_drive(usage: Message) -> Message:
    """FilesystemUsage: the mount point of its file system is drive C."""
    return wire.with_message(usage, 2, wire.with_texts((), 1, ("C:\\",)))


def _image_file_systems(response: Message) -> Message:
    return wire.edited(wire.edited(response, 1, _on_drive), 2, _on_drive)


def _stats(stats: Message) -> Message:
    return wire.edited(stats, 4, _on_drive)


def _container_status(response: Message) -> Message:
    def windows(status: Message) -> Message:
        log = wire.text(status, 15)
        return wire.with_texts(status, 15, (windows_path(log),)) if log else status

    return wire.edited(response, 1, windows)


def _sandbox_status(response: Message) -> Message:
    """PodSandboxStatus: with the network that was asked for."""

    def status(given: Message) -> Message:
        notes = {wire.text(each, 1): wire.text(each, 2) for each in _messages(given, 8)}
        if _ASKED not in notes:
            return given
        network = wire.Field(1, int(notes[_ASKED]))

        def options(own: Message) -> Message:
            return (network, *wire.without(own, 1))

        return wire.edited(
            given,
            6,
            lambda linux: wire.edited(linux, 1, lambda each: wire.edited(each, 2, options)),
        )

    return wire.edited(response, 1, status)


Translation = Callable[[Message], Message]
REQUESTS: Mapping[str, Translation] = {
    "RunPodSandbox": _run_sandbox,
    "CreateContainer": _create_container,
    "ExecSync": _execute,
    "Exec": _execute,
}
"""By method: what is asked of containerd. Other methods pass through."""
RESPONSES: Mapping[str, Translation] = {
    "ImageFsInfo": _image_file_systems,
    "ContainerStats": lambda response: wire.edited(response, 1, _stats),
    "ListContainerStats": lambda response: wire.edited(response, 1, _stats),
    "ContainerStatus": _container_status,
    "PodSandboxStatus": _sandbox_status,
}
"""By method: what the kubelet is told."""


def request(method: str, data: bytes) -> bytes:
    """What containerd is asked instead of a kubelet's request."""
    return _translated(REQUESTS, method, data)


def response(method: str, data: bytes) -> bytes:
    """What the kubelet is told instead of containerd's response."""
    return _translated(RESPONSES, method, data)


def _translated(table: Mapping[str, Translation], method: str, data: bytes) -> bytes:
    translation = table.get(method)
    return data if translation is None else wire.encode(translation(wire.decode(data)))
