"""The CRI's messages, translated between a Windows kubelet and Linux's containerd."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lab.windows.shell import POWERSHELL, encoded_command, file_command
from lab.windows.wine.runtime import places, translate, wire
from lab.windows.wine.runtime.plugin import environment, linux_result, namespace_guid
from lab.windows.wine.runtime.powershell import Script, script_of
from lab.windows.wine.runtime.service import check_sources, drive_path, run_program, time_limit
from lab.windows.wine.runtime.tasks import split_arguments
from lab.windows.wine.runtime.wire import Field, Message


def message(**texts: str) -> Message:
    """Text fields by number: ``message(f3="x")``."""
    return tuple(Field(int(name[1:]), value.encode()) for name, value in texts.items())


def test_a_message_survives_unchanged() -> None:
    fields: Message = (
        Field(1, b"text"),
        Field(2, 300),
        Field(2, 0),
        Field(9, b"\x01" * 8, 8),
        Field(10, b"\x02" * 4, 4),
        Field(200, b""),
    )
    assert wire.decode(wire.encode(fields)) == fields


@pytest.mark.parametrize("data", [b"\x0a\x05ab", b"\x08\xff", b"\x0b"])
def test_a_broken_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"cut short|unknown kind"):
        wire.decode(data)


@pytest.mark.parametrize(
    ("windows", "linux"),
    [
        ("C:\\var\\log\\pods", "/wine/drive_c/var/log/pods"),
        ("c:/var/lib/kubelet", "/wine/drive_c/var/lib/kubelet"),
        (
            "C:\\Windows\\System32\\drivers\\etc\\hosts",
            "/wine/drive_c/windows/system32/drivers/etc/hosts",
        ),
        ("\\var\\run\\secrets", "/wine/drive_c/var/run/secrets"),
        ("C:\\", "/wine/drive_c"),
        ("D:\\images", "D:\\images"),
        ("/etc/hosts", "/etc/hosts"),
    ],
)
def test_paths_on_drive_c_are_below_the_prefix(windows: str, linux: str) -> None:
    assert places.linux_path(windows) == linux


def test_a_path_below_the_prefix_is_on_drive_c() -> None:
    assert places.windows_path("/wine/drive_c/var/log/a.log") == "C:\\var\\log\\a.log"
    assert places.windows_path("/var/log/a.log") == "/var/log/a.log"


def inner(data: Message, *numbers: int) -> Message:
    """The message at a path of field numbers."""
    for number in numbers:
        (data,) = (
            wire.decode(field.value)
            for field in data
            if field.number == number and isinstance(field.value, bytes)
        )
    return data


@pytest.mark.parametrize(
    ("configuration", "search"),
    [
        ({"capabilities": {"dns": True}, "dns": {"search": ["svc.cluster.local"]}}, "probe.svc"),
        ({"dns": {"Search": ["probe.example"]}}, "probe.example"),
        ({"plugins": [{"dns": {"search": ["probe.example"]}}]}, "probe.example"),
        ({"dns": {"Search": ["svc.cluster.local"]}}, None),
        ({}, "probe.svc"),
    ],
)
def test_a_pod_has_one_suffix_the_kubelets_or_the_plugins(
    configuration: dict[str, object], search: str | None
) -> None:
    """Without one that completes partly qualified names alone, as the C library does."""
    resolver = (
        Field(1, b"10.96.0.10"),
        Field(2, b"probe.svc"),
        Field(2, b"svc.cluster.local"),
        Field(3, b"ndots:5"),
    )
    config = (*message(f3="/log"), Field(4, wire.encode(resolver)))
    data = wire.encode((Field(1, wire.encode(config)),))
    sent = translate.with_resolver(data, translate.plugin_search(configuration))
    made = inner(wire.decode(sent), 1, 4)
    assert wire.texts(made, 1) == ("10.96.0.10",)
    assert wire.texts(made, 2) == ((search,) if search else ())
    assert wire.texts(made, 3) == ("ndots:1",)


def test_a_sandbox_gets_linuxs_namespaces() -> None:
    config = (*message(f3="C:\\var\\log\\pods\\a"), Field(9, b""))
    sent = translate.request("RunPodSandbox", wire.encode((Field(1, wire.encode(config)),)))
    made = inner(wire.decode(sent), 1)
    assert wire.text(made, 3) == "/wine/drive_c/var/log/pods/a"
    assert {field.number for field in made} == {3, 7, 8}
    assert inner(made, 8, 2, 1) == (Field(1, 0), Field(2, 1))


@pytest.mark.parametrize("network", [0, 2])
def test_a_kubelet_is_told_the_network_that_it_asked_for(network: int) -> None:
    """Else it makes a pod with `hostNetwork: true` that is no host process again for ever."""
    options = wire.with_message((), 2, wire.with_message((), 1, (Field(1, network),)))
    config = wire.with_message((), 8, options)
    sent = translate.request("RunPodSandbox", wire.encode((Field(1, wire.encode(config)),)))
    made = inner(wire.decode(sent), 1)
    assert inner(made, 8, 2, 1)[0] == Field(1, 0)
    own = wire.with_message((), 1, wire.with_message((), 2, (Field(1, 0), Field(2, 1))))
    notes = next(field for field in made if field.number == 7)
    status = (Field(1, b"id"), replace(notes, number=8), Field(6, wire.encode(own)))
    answer = wire.encode(wire.with_message((), 1, status))
    answered = inner(wire.decode(translate.response("PodSandboxStatus", answer)), 1, 6, 1, 2)
    assert answered == (Field(1, network), Field(2, 1))


def test_a_host_process_pod_is_in_the_nodes_network() -> None:
    windows = wire.with_message((), 1, (Field(3, 1),))
    config = wire.with_message((), 9, windows)
    sent = translate.request("RunPodSandbox", wire.encode((Field(1, wire.encode(config)),)))
    assert inner(wire.decode(sent), 1, 8, 2, 1)[0] == Field(1, 2)


def test_a_host_process_pod_asks_the_nodes_name_server() -> None:
    windows = wire.with_message((), 1, (Field(3, 1),))
    config = wire.with_message((*message(f3="/log"), Field(4, b"")), 9, windows)
    sent = translate.with_resolver(wire.encode((Field(1, wire.encode(config)),)), None)
    assert wire.without(inner(wire.decode(sent), 1), 4) == inner(wire.decode(sent), 1)


def test_a_container_runs_its_command_on_wine() -> None:
    hosts = message(
        f1="C:\\Windows\\System32\\drivers\\etc\\hosts", f2="C:\\var\\lib\\kubelet\\hosts"
    )
    config: Message = (
        *message(f5="C:\\app", f11="web\\0.log"),
        Field(3, b"/agnhost"),
        Field(3, b"netexec"),
        Field(7, wire.encode(hosts)),
        Field(16, b""),
        Field(99, b"what a later CRI has"),
    )
    sent = translate.request("CreateContainer", wire.encode((Field(2, wire.encode(config)),)))
    made = inner(wire.decode(sent), 2)
    assert wire.texts(made, 3) == (places.RUN, "/agnhost", "netexec")
    assert wire.text(made, 5) == "/wine/drive_c/app"
    assert wire.text(made, 11) == "web/0.log"
    assert wire.text(made, 99) == "what a later CRI has"
    mounts = [
        wire.decode(field.value)
        for field in made
        if field.number == 7 and isinstance(field.value, bytes)
    ]
    assert [wire.text(mount, 1) for mount in mounts] == [
        "/wine/drive_c/windows/system32/drivers/etc/hosts",
        "/etc/hosts",
    ]
    assert {wire.text(mount, 2) for mount in mounts} == {"/wine/drive_c/var/lib/kubelet/hosts"}


def test_a_container_is_kept_from_the_kernels_settings_as_on_linux() -> None:
    made = translate.container_config(())
    security = inner(inner(made, 15), 2)
    assert {"/proc/keys", "/proc/kcore", "/sys/firmware"} <= set(wire.texts(security, 13))
    assert {"/proc/sys", "/proc/sysrq-trigger"} <= set(wire.texts(security, 14))


@pytest.mark.parametrize("path", ["D:\\bundle", "\\\\.\\pipe\\containerd-containerd"])
def test_a_mount_that_is_not_on_drive_c_is_refused(path: str) -> None:
    config = wire.with_message((), 7, message(f1="C:\\seen", f2=path))
    with pytest.raises(ValueError, match="is not on drive C"):
        translate.request("CreateContainer", wire.encode((Field(2, wire.encode(config)),)))


def test_a_user_whom_wine_has_not_is_refused_as_on_windows() -> None:
    words = "runAsUserName 'Bob' cannot be kept.*The user name or password is incorrect"
    config = wire.with_message(message(f3="cmd"), 16, wire.with_message((), 2, message(f1="Bob")))
    (command,) = wire.texts(translate.container_config(config), 3)
    assert re.search(words, command)
    sandbox = wire.with_message((), 9, wire.with_message((), 1, message(f1="Bob")))
    with pytest.raises(ValueError, match=words):
        translate.sandbox_config(sandbox)


@pytest.mark.parametrize(
    "user", ["", "ContainerAdministrator", "ContainerUser", "NT AUTHORITY\\SYSTEM"]
)
def test_users_of_windows_containers_are_wines(user: str) -> None:
    config = wire.with_message((), 16, wire.with_message((), 2, message(f1=user)))
    assert wire.texts(translate.container_config(config), 3) == ()


def test_a_host_process_is_told_where_its_images_files_are() -> None:
    config = wire.with_message((), 16, wire.with_message((), 2, (Field(3, 1),)))
    variable = inner(translate.container_config(config), 6)
    assert (wire.text(variable, 1), wire.text(variable, 2)) == (
        "CONTAINER_SANDBOX_MOUNT_POINT",
        "C:\\hpc",
    )
    assert wire.texts(translate.container_config(()), 6) == ()


def test_a_service_account_of_a_domain_is_refused() -> None:
    config = wire.with_message((), 16, wire.with_message((), 2, message(f2="{}")))
    with pytest.raises(ValueError, match="gmsaCredentialSpec cannot be kept"):
        translate.container_config(config)


def test_a_runtime_class_of_process_isolation_is_the_only_runtime() -> None:
    for handler, kept in (("runhcs-wcow-process", ""), ("runhcs-wcow-hypervisor", "same")):
        request = wire.with_texts((), 2, (handler,))
        sent = wire.decode(translate.request("RunPodSandbox", wire.encode(request)))
        assert wire.text(sent, 2) == (handler if kept else "")


def test_a_mount_whose_links_lead_out_of_drive_c_is_refused(tmp_path: Path) -> None:
    drive = tmp_path / "drive_c"
    (drive / "volume" / "data").mkdir(parents=True)
    (drive / "volume" / "inside").symlink_to("data")
    (drive / "volume" / "out").symlink_to("/")
    check_sources([f"{drive}/volume/inside", f"{drive}/volume/new"], str(drive))
    for path in ("volume/out/etc", "volume/../../other"):
        with pytest.raises(ValueError, match="lead out of drive C"):
            check_sources([f"{drive}/{path}"], str(drive))


def test_an_images_own_program_is_left_to_the_image() -> None:
    config = message(f2="image")
    sent = translate.request("CreateContainer", wire.encode((Field(2, wire.encode(config)),)))
    assert wire.texts(inner(wire.decode(sent), 2), 3) == ()


def test_file_systems_are_on_drive_c() -> None:
    usage = (Field(1, 5), *wire.with_message((), 2, message(f1="/var/lib/containerd")))
    answer = translate.response("ImageFsInfo", wire.encode((Field(1, wire.encode(usage)),)))
    assert wire.text(inner(wire.decode(answer), 1, 2), 1) == "C:\\"


def test_a_log_file_is_where_windows_looks_for_it() -> None:
    status = message(f1="id", f15="/wine/drive_c/var/log/pods/a/web/0.log")
    answer = translate.response("ContainerStatus", wire.encode((Field(1, wire.encode(status)),)))
    assert wire.text(inner(wire.decode(answer), 1), 15) == "C:\\var\\log\\pods\\a\\web\\0.log"


def test_other_methods_pass_through() -> None:
    assert translate.request("Version", b"\x0a\x02v1") == b"\x0a\x02v1"
    assert translate.response("ListImages", b"\xff") == b"\xff"


def test_the_windows_plugin_gets_a_guid_for_the_namespace() -> None:
    guid = namespace_guid("0123abcd")
    assert guid == namespace_guid("0123abcd") != namespace_guid("0123abce")
    given = {"CNI_COMMAND": "ADD", "CNI_NETNS": "/var/run/netns/cni-1", "HOME": "/root"}
    assert environment(given, guid) == {
        "CNI_COMMAND": "ADD",
        "CNI_NETNS": guid,
        "CNI_PATH": "C:\\opt\\cni\\bin",
    }


def test_containerd_gets_the_plugins_addresses_on_eth0() -> None:
    result = json.loads(
        '{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.244.1.2/24","gateway":"10.244.1.1"}],'
        '"interfaces":[{"name":"abc1_flannel.4096","mac":"0E-2A-0a-f4-01-02"}],"dns":{}}'
    )
    made = linux_result(result, "/var/run/netns/cni-1")
    assert made["interfaces"] == [{"name": "eth0", "sandbox": "/var/run/netns/cni-1"}]
    assert made["ips"] == [
        {"address": "10.244.1.2/24", "gateway": "10.244.1.1", "version": "4", "interface": 0}
    ]


def test_an_answer_of_cni_0_2_0_is_left_as_it_is() -> None:
    result = {"cniVersion": "0.2.0", "ip4": {"ip": "10.244.1.8/24", "gateway": "10.244.1.1"}}
    assert linux_result(result, "/var/run/netns/cni-1") == result


@pytest.mark.parametrize(
    ("word", "path"),
    [
        ("D:\\images\\pause.tar", "/run/hybridlab/bundle/images/pause.tar"),
        ("C:\\k\\a.tar", "/wine/drive_c/k/a.tar"),
        ("k8s.io", "k8s.io"),
    ],
)
def test_words_of_ctr_are_paths_of_linux(word: str, path: str) -> None:
    assert drive_path(word) == path


def test_a_tasks_arguments_are_split_outside_quotes() -> None:
    line = '-NoProfile -File C:\\a.ps1 -Settings "C:\\with blank\\a.json" ""'
    assert split_arguments(line) == [
        "-NoProfile",
        "-File",
        "C:\\a.ps1",
        "-Settings",
        "C:\\with blank\\a.json",
        "",
    ]


@pytest.mark.parametrize(
    ("command", "script"),
    [
        (file_command("C:\\x.ps1"), Script("C:\\x.ps1")),
        (file_command("C:\\x.ps1", ("-Settings", "C:\\x.json")), Script("C:\\x.ps1", "C:\\x.json")),
        (file_command("C:\\x.ps1", ("-Other", "C:\\x.json")), None),
        ((POWERSHELL, "-Command", "Get-Date"), None),
    ],
)
def test_a_script_is_known_by_powershells_command_line(
    command: tuple[str, ...], script: Script | None
) -> None:
    assert script_of(command) == script


def test_a_script_on_the_command_line_is_written_to_a_file() -> None:
    script = script_of(encoded_command("'text'"))
    assert script is not None
    assert (script.text, script.settings) == ("'text'", "")
    assert script.path.startswith("C:\\hybridlab\\command-")


@pytest.mark.parametrize(
    ("remaining", "limit"), [(9.223372035058859e18, None), (None, None), (5.0, 5.0), (0.0, 0.0)]
)
def test_a_call_without_a_time_limit_has_none_at_containerd_either(
    remaining: float | None, limit: float | None
) -> None:
    assert time_limit(remaining) == limit


def test_a_mount_without_a_drive_is_on_drive_c_and_where_wine_looks_for_it() -> None:
    token = "/var/run/secrets/kubernetes.io/serviceaccount"
    config = wire.with_message((), 7, wire.with_texts(message(f1=token), 2, ("C:\\k\\token",)))
    made = translate.container_config(config)
    mounts = [wire.decode(field.value) for field in made if field.number == 7]
    assert [(wire.text(mount, 1), wire.text(mount, 2)) for mount in mounts] == [
        (token, "/wine/drive_c/k/token"),
        (f"/wine/drive_c{token}", "/wine/drive_c/k/token"),
    ]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["show", "a", "", "b c"], (7, b"a||b c\n")),
        (["none"], (1, b"'none' is none of show, sleep, absent\n")),
        ([], (1, b"'' is none of show, sleep, absent\n")),
        (["absent"], (1, b"absent: [Errno 2] No such file or directory: '/no/program'\n")),
        (["show", "a\0b"], (1, b"show: embedded null byte\n")),
        (["sleep"], (1, b"sleep did not end within 0.1 s; it wrote: ''\n")),
    ],
)
def test_a_program_of_linux_is_always_answered(words: list[str], answer: tuple[int, bytes]) -> None:
    programs = {
        "show": ("sh", "-c", "IFS='|'; echo \"$*\"; exit 7", "sh"),
        "sleep": ("sleep", "60"),
        "absent": ("/no/program",),
    }
    assert run_program(programs, words, 0.1 if words == ["sleep"] else 60.0) == answer
