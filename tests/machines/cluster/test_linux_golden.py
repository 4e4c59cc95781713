"""What becomes of each scenario's Linux machines, held by files.

After a wanted change, see :mod:`golden_files`.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from golden_files import check_golden
from linux_clusters import Case, addon_documents, case, of_every_topology, render
from ruamel.yaml import YAML

from lab.machines.cluster import documents
from lab.machines.cluster.credentials import Access, Pair, kubeconfig_text
from lab.machines.cluster.documents import Document, to_yaml
from lab.machines.cluster.kubeadm import Ticket, api_endpoint, init_documents, join_documents
from lab.machines.cluster.linux.daemons import daemon_operations, wanted_daemons
from lab.machines.cluster.linux.hard_way import (
    BLANK,
    controller_subjects,
    run_controller,
    run_worker,
)
from lab.machines.cluster.linux.joining import (
    finish_control_plane,
    leave_cluster,
    start_control_plane,
)
from lab.machines.cluster.linux.node import haproxy_config, prepare_node

CASES = Path(__file__).parents[2] / "cases" / "cluster"
TICKET = Ticket("abcdef.0123456789abcdef", f"sha256:{'0' * 64}", "1" * 64)
CLIENT = Pair("CERTIFICATE\n", "KEY\n")


def init(case: Case) -> str:
    return to_yaml(init_documents(case.cluster, case.intent, case.manifest, case.around))


def daemons(case: Case, name: str) -> str:
    """Without what their own files say, which is the Intent's."""
    bare = [
        replace(daemon, files=tuple(replace(file, text="...\n") for file in daemon.files))
        for daemon in wanted_daemons(case.intent)[name]
    ]
    return "".join(render(daemon_operations(daemon)) for daemon in bare)


def initialising(case: Case, _: str) -> str:
    made = init_documents(case.cluster, case.intent, case.manifest, case.around)
    begun = start_control_plane(case.cluster, made, case.around.patience)
    return render((*begun, *finish_control_plane(made, "MARK")))


def subjects(case: Case, name: str) -> str:
    certificate_subjects = controller_subjects(
        case.cluster, case.intent, case.node(name), case.around
    )
    return "".join(f"{key}: {subject}\n" for key, subject in certificate_subjects.items())


def add_ons(case: Case, _: str) -> str:
    """What the documents' templates are given, each document's name, and those of no template."""
    lines: list[str] = []
    rendered: list[Document] = []
    render_text = documents.render_text

    def note_values(template: str, **values: object) -> str:
        lines.append(f"{template}:")
        for name, value in values.items():
            lines.extend(f"    {line}" for line in f"{name}: {value}".splitlines())
        made = render_text(template, **values)
        rendered.extend(YAML(typ="safe", pure=True).load_all(made))
        return made

    with patch.object(documents, "render_text", note_values):
        for document in addon_documents(case.cluster, case.intent, case.manifest):
            lines.append(f"{document['kind']} {document['metadata']['name']}")
            if document not in rendered:
                lines += [f"    {line}" for line in to_yaml([document]).splitlines()]
    return "".join(f"{line}".rstrip() + "\n" for line in lines)


def exported(case: Case, _: str) -> str:
    server = f"https://{api_endpoint(case.cluster)}"
    return kubeconfig_text(Access("hybridlab-drill", server, "CA\n", CLIENT))


MADE: dict[str, Callable[[Case, str], str]] = {
    "init": lambda case, _: init(case),
    "initialising": initialising,
    "join": lambda case, name: to_yaml(
        join_documents(case.cluster, case.node(name), TICKET, case.around)
    ),
    "node": lambda case, name: render(
        prepare_node(case.cluster, case.intent, case.node(name), case.manifest)
    ),
    "kubeconfig": exported,
    "leaving": lambda case, _: render(leave_cluster(case.cluster)),
    "haproxy": lambda case, _: haproxy_config(case.cluster, case.intent),
    "daemons": daemons,
    "plane": lambda case, name: render(
        run_controller(case.cluster, case.intent, case.node(name), BLANK, case.around)
    ),
    "worker": lambda case, name: render(run_worker(case.cluster, case.node(name), BLANK)),
    "certificates": subjects,
    "add": add_ons,
}


def made(file: str) -> str:
    """The content of a file, by its name: ``SCENARIO/WHAT-NODE.yaml``."""
    folder, _, name = file.partition("/")
    what, _, node = name.rpartition(".")[0].partition("-")
    planes = 3 if folder.endswith("-three-planes") else None
    patience = 8 if node == "emulated" else 1
    one = case(folder.removesuffix("-three-planes"), patience=patience, planes=planes)
    return MADE[what](one, node)


ALIKE = {
    "overlay-three-planes/haproxy.cfg": (
        "hard-way/haproxy.cfg",
        "kubeinit/haproxy.cfg",
        "upstream-vrrp/haproxy.cfg",
    ),
    "overlay-three-planes/join-master2.yaml": (
        "kubeinit/join-controller-02.yaml",
        "overlay/join-worker1.yaml",
        "upstream-vrrp/join-master2.yaml",
    ),
    "overlay/add-ons.txt": (
        "host-gateway/add-ons.txt",
        "kubeinit/add-ons.txt",
        "upstream-tor/add-ons.txt",
    ),
    "overlay/init.yaml": (
        "calico-vxlan/init.yaml",
        "host-gateway/init.yaml",
        "kubeinit/init.yaml",
        "overlay-three-planes/init.yaml",
        "overlay/init-emulated.yaml",
        "ovn/init.yaml",
        "upstream-tor/init.yaml",
    ),
    "overlay/node-worker1.txt": (
        "host-gateway/node-worker1.txt",
        "kubeinit/node-compute-03.txt",
        "overlay/node-master.txt",
        "ovn/node-worker1.txt",
        "upstream-tor/node-node001.txt",
    ),
    "calico-vxlan/add-ons.txt": ("calico-bgp/add-ons.txt",),
    "upstream-tor/add-ons.txt": (
        "calico-vxlan/add-ons.txt",
        "hard-way/add-ons.txt",
        "ovn/add-ons.txt",
        "upstream-vrrp/add-ons.txt",
    ),
    "upstream-tor/init.yaml": ("upstream-vrrp/init.yaml",),
    "upstream-tor/node-node001.txt": (
        "hard-way/node-worker-0.txt",
        "upstream-vrrp/node-master1.txt",
    ),
}
"""Files that are kept as their difference from another."""
LIKE = {name: other for other, names in ALIKE.items() for name in names}


FILES = sorted(
    str(path.relative_to(CASES)).removesuffix(".diff")
    for path in CASES.glob("*/*")
    if path.is_file()
)


@pytest.mark.parametrize("name", FILES)
def test_a_scenario_becomes_its_golden_file(name):
    check_golden(CASES / name, made(name), made(LIKE[name]) if name in LIKE else None)


def test_every_topology_has_a_file_of_its_add_ons():
    assert {f"{name}/add-ons.txt" for name in of_every_topology()} | LIKE.keys() <= set(FILES)


@pytest.mark.parametrize("minor", ["1.33", "1.34", "1.35", "1.36"])
def test_every_supported_minor_reads_the_same_configuration(minor):
    newest = init(case("overlay")).replace("v1.36.3", f"v{minor}.3")
    assert init(case("overlay", f"{minor}.3")) == newest
