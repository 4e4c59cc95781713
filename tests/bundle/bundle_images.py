"""The container images of a test bundle, and their contents."""

from pathlib import Path

from bundle_pins import read_pins
from go_programs import module_folder
from host_programs import clients, packet_filters, shell, unpacked, with_libraries
from image_archives import SEARCHED, Entry, Image

from lab._deadline import Deadline

TESTS = "registry.k8s.io/e2e-test-images"
USERS = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"
GROUPS = "root:x:0:\nnonroot:x:65532:\n"
BASE = (
    Entry("/etc/passwd", text=USERS, mode=0o644),
    Entry("/etc/group", text=GROUPS, mode=0o644),
    Entry("/etc/nsswitch.conf", text="hosts: files dns\n", mode=0o644),
    Entry("/tmp", mode=0o1777),
    Entry("/run"),
)
"""Files that a static program may look for."""


def bundle_images(
    versions: dict[str, str], programs: Path, deadline: Deadline
) -> tuple[Image, ...]:
    """Return the images, filled from the folder ``programs`` and from this host."""
    return (
        *_control_plane(versions, programs),
        *_system(versions, programs),
        _kube_proxy(versions, programs, deadline),
        _flannel(versions, programs, deadline),
        _agnhost(versions, programs, shell(deadline)),
    )


def _control_plane(versions: dict[str, str], programs: Path) -> list[Image]:
    """Return the three images whose manifests call a program by its bare name."""
    return [
        Image(
            f"registry.k8s.io/{name}:v{versions['kubernetes']}",
            (*BASE, Entry(f"/usr/local/bin/{name}", source=programs / name)),
            (name,),
        )
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ]


def _system(versions: dict[str, str], programs: Path) -> list[Image]:
    """Return the images of one static program, or two."""
    etcd = [Entry(f"/usr/local/bin/{n}", source=programs / n) for n in ("etcd", "etcdctl")]
    coredns = Entry("/coredns", source=programs / "coredns")
    pause = Entry("/pause", source=programs / "pause")
    return [
        # the tag that kubeadm uses: upstream counts image revisions from 0
        Image(f"registry.k8s.io/etcd:{versions['etcd']}-0", (*BASE, *etcd), ("etcd",)),
        Image(
            f"registry.k8s.io/coredns/coredns:v{versions['coredns']}",
            (*BASE, coredns),
            ("/coredns",),
        ),
        Image(
            f"registry.k8s.io/pause:{versions['pause']}", (pause,), ("/pause",), user="65535:65535"
        ),
    ]


def _kube_proxy(versions: dict[str, str], programs: Path, deadline: Deadline) -> Image:
    proxy = Entry("/usr/local/bin/kube-proxy", source=programs / "kube-proxy")
    return Image(
        f"registry.k8s.io/kube-proxy:v{versions['kubernetes']}",
        (*BASE, *packet_filters(deadline), proxy),
        ("/usr/local/bin/kube-proxy",),
    )


def _flannel(versions: dict[str, str], programs: Path, deadline: Deadline) -> Image:
    """Return flanneld's image, with its CNI plugin and ``cp`` for the init containers."""
    flannel = (
        Entry("/opt/bin/flanneld", source=programs / "flanneld"),
        Entry("/flannel", source=programs / "cni" / "flannel"),
    )
    return Image(
        f"ghcr.io/flannel-io/flannel:v{versions['flannel']}",
        (*BASE, *packet_filters(deadline), *shell(deadline), *flannel),
        ("/opt/bin/flanneld",),
    )


def conformance_images(
    versions: dict[str, str], programs: Path, deadline: Deadline
) -> tuple[Image, ...]:
    """Return the images of Kubernetes' network tests.

    The programs that the tests call in a container are Debian's; upstream's agnhost has Alpine's.
    nginx, which serves anything on port 80, is agnhost's web server. One test runs agnhost's
    CoreDNS as a DNS server of its own.
    """
    kubernetes = next(module for module in read_pins().modules if module.name == "kubernetes")
    porter = module_folder(kubernetes, deadline) / "test/images/agnhost/porter"
    keys = (Entry(f"/{name}", source=porter / name) for name in ("localhost.crt", "localhost.key"))
    coredns = Entry("/coredns", source=programs / "coredns")
    around = clients(deadline)
    server = "regression-issue-74839"
    return (
        _agnhost(versions, programs, (*around, *keys, coredns)),
        *(
            Image(f"{TESTS}/{name}:{versions[name]}", (*BASE, *around), ("/bin/sh",))
            for name in ("glibc-dns-testing", "busybox")
        ),
        Image(
            f"{TESTS}/nginx:{versions['nginx']}",
            (*BASE, *around, Entry("/agnhost", source=programs / "agnhost")),
            ("/agnhost", "test-webserver"),
        ),
        Image(
            f"{TESTS}/{server}:{versions[server]}",
            (*BASE, Entry(f"/{server}", source=programs / server)),
            (f"/{server}",),
        ),
        Image(
            f"registry.k8s.io/build-image/distroless-iptables:v{versions['distroless-iptables']}",
            (*BASE, *around, *packet_filters(deadline)),
            ("/bin/sh",),
        ),
    )


def calico_images(
    versions: dict[str, str], programs: Path, deadline: Deadline
) -> tuple[Image, ...]:
    """Return the three images of Calico for a cluster with plain manifests."""
    ours = programs / "calico"
    cni = [Entry(f"/opt/cni/bin/{name}", source=ours / name) for name in ("calico", "install")]
    cni.append(Entry("/opt/cni/bin/calico-ipam", source=ours / "calico"))
    controllers = [
        Entry(f"/usr/bin/{name}", source=ours / name)
        for name in ("kube-controllers", "check-status")
    ]
    writable = [Entry(path, mode=0o777) for path in ("/status", "/profiles")]
    return (
        _calico_node(versions, ours, programs, deadline),
        Image(
            f"quay.io/calico/cni:v{versions['calico']}",
            (*BASE, *cni),
            (),
            command=("/opt/cni/bin/install",),
        ),
        Image(
            f"quay.io/calico/kube-controllers:v{versions['calico']}",
            (*BASE, *controllers, *writable),
            ("/usr/bin/kube-controllers",),
            user="999",
        ),
    )


def _calico_node(versions: dict[str, str], ours: Path, programs: Path, deadline: Deadline) -> Image:
    """Return Felix, confd and BIRD under runit, with the files of Calico's own image.

    BIRD is Debian's 1.6, which confd's templates are for. It lacks ``krt_tunnel``, a feature
    of Calico's fork for IP-in-IP tunnels; the templates here do not use it.
    """
    calico = next(module for module in read_pins().modules if module.name == "calico")
    module = module_folder(calico, deadline)
    roots = unpacked(programs / "unpacked", deadline)
    bird, runit = roots["bird"], roots["runit"]
    found = {
        f"/usr/sbin/{name}": bird / f"usr/sbin/{name}"
        for name in ("bird", "bird6", "birdc", "birdc6")
    }
    found |= {
        f"/usr/bin/{name}": runit / f"usr/bin/{name}"
        for name in ("runsv", "runsvdir", "sv", "svlogd")
    }
    found |= {f"/bin/{name}": Path("/usr/bin") / name for name in ("bash", "sed", "tee")}
    found |= {f"/sbin/{name}": Path("/usr/sbin") / name for name in ("ip", "ipset")}
    texts = [
        *_files(module / "node/filesystem", "/"),
        *_files(module / "confd/etc/calico/confd", "/etc/calico/confd"),
    ]
    return Image(
        f"quay.io/calico/node:v{versions['calico']}",
        (
            *BASE,
            *packet_filters(deadline),
            *shell(deadline),
            *with_libraries(found, deadline),
            *texts,
            Entry("/usr/bin/which", source=Path("/usr/bin/which")),
            Entry("/bin/calico-node", source=ours / "calico-node"),
            Entry("/etc/calico/confd/config"),
            Entry("/var/lib/calico"),
            Entry("/var/log/calico"),
        ),
        (),
        command=("start_runit",),
        # As Calico's own image has it: without, confd's "sv hup bird" finds no service, and BIRD
        # goes on without the blocks that came after its start. Felix calls C for eBPF, which these
        # programs are built without.
        environment=(SEARCHED, "SVDIR=/etc/service/enabled", "FELIX_DebugSkipCTLBCleanup=true"),
    )


def _files(folder: Path, below: str) -> list[Entry]:
    """Every text file of a folder, without lines that Debian's BIRD does not support."""
    entries = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        lines = path.read_text().splitlines(keepends=True)
        text = "".join(line for line in lines if "krt_tunnel" not in line)
        runs = text.startswith("#!") or path.name == "rc.local"
        mode = 0o755 if runs else 0o644
        entries.append(Entry(str(Path(below) / path.relative_to(folder)), text=text, mode=mode))
    return entries


def agnhost_with_curl(programs: Path, deadline: Deadline) -> Image:
    """Return the test program's image with curl and nsenter, as upstream's has them."""
    paths = {path: Path(path) for path in ("/usr/bin/curl", "/usr/bin/nsenter")}
    around = (*shell(deadline), *with_libraries(paths, deadline))
    return _agnhost({"agnhost": "curl"}, programs, around)


def _agnhost(versions: dict[str, str], programs: Path, around: tuple[Entry, ...]) -> Image:
    """Return the image of upstream's test program; upstream's is based on Alpine."""
    agnhost = (
        Entry("/agnhost", source=programs / "agnhost"),
        Entry("/agnhost-2", link="agnhost"),
        Entry("/uploads", mode=0o777),
    )
    return Image(
        f"{TESTS}/agnhost:{versions['agnhost']}",
        (*BASE, *around, *agnhost),
        ("/agnhost",),
        command=("pause",),
    )
