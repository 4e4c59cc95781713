"""What becomes of each scenario's Linux machines, held by files.

After a wanted change, see :mod:`golden_files`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from golden_files import check_golden
from linux_clusters import Case, case, of_every_topology, render

from lab.cluster.credentials import Access, Pair, kubeconfig_text
from lab.cluster.documents import to_yaml
from lab.cluster.kubeadm import Ticket, api_endpoint, init_documents, join_documents
from lab.cluster.linux.bring_up import addon_documents
from lab.cluster.linux.daemons import daemon_operations, wanted_daemons
from lab.cluster.linux.hard_way import (
    BLANK,
    controller_subjects,
    run_controller,
    run_worker,
)
from lab.cluster.linux.joining import finish_control_plane, leave_cluster, start_control_plane
from lab.cluster.linux.node import haproxy_config, prepare_node

CASES = Path(__file__).parents[2] / "cases" / "cluster"
TICKET = Ticket("abcdef.0123456789abcdef", f"sha256:{'0' * 64}", "1" * 64)
CLIENT = Pair("CERTIFICATE\n", "KEY\n")


def init(one: Case) -> str:
    return to_yaml(init_documents(one.cluster, one.intent, one.manifest, one.around))


def initialising(one: Case) -> str:
    documents = init_documents(one.cluster, one.intent, one.manifest, one.around)
    begun = start_control_plane(one.cluster, documents, one.around.patience)
    return render((*begun, *finish_control_plane(documents, "MARK")))


def join(one: Case, name: str) -> str:
    return to_yaml(join_documents(one.cluster, one.node(name), TICKET, one.around))


def prepared(one: Case, name: str) -> str:
    return render(prepare_node(one.cluster, one.intent, one.node(name), one.manifest))


def added(one: Case) -> str:
    return to_yaml(addon_documents(one.cluster, one.intent, one.manifest))


def added_in(name: str) -> str:
    return added(case(name))


def plane(one: Case, name: str) -> str:
    node = one.node(name)
    made = run_controller(one.cluster, one.intent, node, BLANK, one.around)
    return render(made)


def balancing(one: Case) -> str:
    return haproxy_config(one.cluster, one.intent)


def daemons_of(one: Case, name: str) -> str:
    """Without what their own files say, which is the Intent's."""
    bare = [
        replace(daemon, files=tuple(replace(file, text="...\n") for file in daemon.files))
        for daemon in wanted_daemons(one.intent)[name]
    ]
    return "".join(render(daemon_operations(daemon)) for daemon in bare)


def subjects(one: Case, name: str) -> str:
    found = controller_subjects(one.cluster, one.intent, one.node(name), one.around)
    return "".join(f"{key}: {subject}\n" for key, subject in found.items())


def worker(one: Case, name: str) -> str:
    return render(run_worker(one.cluster, one.node(name), BLANK))


def exported(one: Case) -> str:
    server = f"https://{api_endpoint(one.cluster)}"
    return kubeconfig_text(Access("hybridlab-drill", server, "CA\n", CLIENT))


FILES: dict[str, Callable[[], str]] = {
    "overlay/init.yaml": lambda: init(case("overlay")),
    "overlay/init-emulated.yaml": lambda: init(case("overlay", patience=8)),
    "overlay/initialising-emulated.txt": lambda: initialising(case("overlay", patience=8)),
    "overlay/join-worker1.yaml": lambda: join(case("overlay"), "worker1"),
    "overlay/node-master.txt": lambda: prepared(case("overlay"), "master"),
    "overlay/node-worker1.txt": lambda: prepared(case("overlay"), "worker1"),
    "overlay/kubeconfig.yaml": lambda: exported(case("overlay")),
    "overlay/leaving.txt": lambda: render(leave_cluster(case("overlay").cluster)),
    "overlay-three-planes/init.yaml": lambda: init(case("overlay", planes=3)),
    "overlay-three-planes/join-master2.yaml": lambda: join(case("overlay", planes=3), "master2"),
    "overlay-three-planes/haproxy.cfg": lambda: balancing(case("overlay", planes=3)),
    "host-gateway/init.yaml": lambda: init(case("host-gateway")),
    "host-gateway/node-worker1.txt": lambda: prepared(case("host-gateway"), "worker1"),
    "upstream-tor/init.yaml": lambda: init(case("upstream-tor")),
    "upstream-tor/node-node001.txt": lambda: prepared(case("upstream-tor"), "node001"),
    "kubeinit/init.yaml": lambda: init(case("kubeinit")),
    "kubeinit/join-controller-02.yaml": lambda: join(case("kubeinit"), "controller-02"),
    "kubeinit/haproxy.cfg": lambda: balancing(case("kubeinit")),
    "kubeinit/daemons-services.txt": lambda: daemons_of(case("kubeinit"), "services"),
    "kubeinit/node-compute-03.txt": lambda: prepared(case("kubeinit"), "compute-03"),
    "calico-vxlan/init.yaml": lambda: init(case("calico-vxlan")),
    "calico-bgp-tor/daemons-router.txt": lambda: daemons_of(case("calico-bgp-tor"), "router"),
    "ovn/init.yaml": lambda: init(case("ovn")),
    "ovn/node-worker1.txt": lambda: prepared(case("ovn"), "worker1"),
    "upstream-vrrp/init.yaml": lambda: init(case("upstream-vrrp")),
    "upstream-vrrp/join-master2.yaml": lambda: join(case("upstream-vrrp"), "master2"),
    "upstream-vrrp/haproxy.cfg": lambda: balancing(case("upstream-vrrp")),
    "upstream-vrrp/node-master1.txt": lambda: prepared(case("upstream-vrrp"), "master1"),
    "upstream-vrrp/daemons-master1.txt": lambda: daemons_of(case("upstream-vrrp"), "master1"),
    "hard-way/node-controller-0.txt": lambda: prepared(case("hard-way"), "controller-0"),
    "hard-way/node-worker-0.txt": lambda: prepared(case("hard-way"), "worker-0"),
    "hard-way/plane-controller-0.txt": lambda: plane(case("hard-way"), "controller-0"),
    "hard-way/certificates-controller-0.txt": lambda: subjects(case("hard-way"), "controller-0"),
    "hard-way/worker-worker-0.txt": lambda: worker(case("hard-way"), "worker-0"),
    "hard-way/haproxy.cfg": lambda: balancing(case("hard-way")),
    **{f"{name}/add-ons.yaml": partial(added_in, name) for name in of_every_topology()},
}


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
    "overlay/add-ons.yaml": (
        "host-gateway/add-ons.yaml",
        "kubeinit/add-ons.yaml",
        "upstream-tor/add-ons.yaml",
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
    "calico-vxlan/add-ons.yaml": ("calico-bgp/add-ons.yaml",),
    "upstream-tor/add-ons.yaml": (
        "calico-vxlan/add-ons.yaml",
        "hard-way/add-ons.yaml",
        "ovn/add-ons.yaml",
        "upstream-vrrp/add-ons.yaml",
    ),
    "upstream-tor/init.yaml": ("upstream-vrrp/init.yaml",),
    "upstream-tor/node-node001.txt": (
        "hard-way/node-worker-0.txt",
        "upstream-vrrp/node-master1.txt",
    ),
}
"""Files that are kept as their difference from another."""
LIKE = {name: other for other, names in ALIKE.items() for name in names}


@pytest.mark.parametrize("name", FILES)
def test_a_scenario_becomes_what_its_file_says(name: str) -> None:
    like = FILES[LIKE[name]]() if name in LIKE else None
    check_golden(CASES / name, FILES[name](), like)


def test_every_file_is_of_a_case() -> None:
    there = {str(path.relative_to(CASES)) for path in CASES.glob("*/*") if path.is_file()}
    assert there == {f"{name}.diff" if name in LIKE else name for name in FILES}


@pytest.mark.parametrize("minor", ["1.33", "1.34", "1.35", "1.36"])
def test_every_supported_minor_reads_the_same_configuration(minor: str) -> None:
    newest = init(case("overlay")).replace("v1.36.3", f"v{minor}.3")
    assert init(case("overlay", f"{minor}.3")) == newest
