"""The queries to a Linux node: one shell script, one round trip, an answer for each query. Pure.

A missing tool is answered by ``absent``, and a failing tool by its exit code and error message. The
last answer is the end mark: without it, the script did not run to its end, and has no answers.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lab._errors import BrokenError
from lab._log import one_line
from lab.shells.shell import Script

Place = Literal["computer", "namespace", "pod"]
"""A whole computer, a network namespace that is a node, or a pod's network namespace."""

MARK = "@@@"
_ABSENT, _LACKING, _END = "absent", "lacking", "end"
_EACH_SECONDS = 10
"""Limit in seconds for tools that query a program, which may hang; the kernel does not."""
ADMIN, SUBNET = "/etc/kubernetes/admin.conf", "/run/flannel/subnet.env"
_UNITS = "containerd kubelet kube-proxy flanneld haproxy kube-apiserver etcd"

ENTER_POD = "/run/hybridlab/enter"
"""Prefix of a command on a Kubernetes pod's node: runs the command in the pod's network."""


WITH_PROXY = "chroot /proc/$(pgrep -o -x kube-proxy)/root"
"""Prefix of a command whose program is in kube-proxy's image, and perhaps not on the node."""
WITH_CALICO = "chroot /proc/$(pgrep -o -x calico-node)/root"
"""The same for Calico's image, which has ``ipset``."""


def from_node(pod: str, command: str) -> str:
    """The command on a pod's node, as the pod's containers have no such programs."""
    return f"{ENTER_POD} {pod} sh -c {shlex.quote(command)}"


HEAD = f"""
PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin:/usr/local/bin LC_ALL=C within=; export PATH LC_ALL
bound=; if command -v timeout > /dev/null; then bound='timeout {_EACH_SECONDS}'; fi
ask() {{ # what, program, arguments
    printf '\\n{MARK} %s\\n' "$1"; printf '\\n{MARK} %s\\n' "$1" >&2
    shift
    if command -v "$1" > /dev/null; then
        $within "$@" < /dev/null; printf '\\n{MARK}= %s\\n' $?
    else
        printf '{MARK}= {_ABSENT} %s\\n' "$1"
    fi
}}
lack() {{ # what, part of the kernel
    printf '\\n{MARK} %s\\n{MARK}= {_LACKING} %s\\n' "$1" "$2"
}}
"""
RAN = "[ $? -lt 126 ]"
"""Whether the last program ran to its end, whatever it found."""
_NETWORK = """
ask address ip -json -details -statistics address
ask route ip route show table all
ask neighbour ip neighbour show nud all
ask sockets ss -H -l -n -t -u -p
if [ -f /etc/resolv.conf ]; then ask "file /etc/resolv.conf" cat /etc/resolv.conf; fi
"""
"""Asked of every machine and pod."""
_TABLES = """
ask proxy ip neighbour show proxy
ask forwarding bridge fdb show
ask ruleset nft -a -s list ruleset
if [ -e /proc/net/psched ]; then  # made by the part of the kernel that schedules packets
    ask queues tc qdisc show
else
    lack queues 'packet scheduler'
fi
ask settings sh -c 'cd /proc/sys/net && grep -rs . ipv4 core bridge netfilter unix; RAN'
if grep -qs . /proc/net/ip_tables_names; then ask iptables-legacy iptables-legacy-save -c; fi
""".replace("RAN", RAN)
"""Asked of machines; of pods if everything is compared."""
_FURTHER = (
    r"""
ask space sh -c 'cat /proc/sys/kernel/random/boot_id && readlink /proc/self/ns/net'
ask cache ip route show cache
ip rule > /dev/null 2>&1
if [ $? = 2 ]; then  # the kernel refuses the request (ip(8)), as one without rules does
    lack rules 'policy routing'
else
    ask rules ip rule
fi
if [ -e /proc/sys/net/ipv4/nexthop_compat_mode ] || ip nexthop > /dev/null 2>&1; then
    ask nexthops ip nexthop
else
    lack nexthops 'nexthop objects'
fi
ask vlans bridge vlan show
ip xfrm state count > /dev/null 2>&1  # loads the module if there is one
grep -q '^[0-9a-f]*  *6  *0 ' /proc/net/netlink  # the kernel's own socket of NETLINK_XFRM
if [ $? = 1 ]; then
    for what in policies states default; do lack "xfrm-$what" xfrm; done
else
    ask xfrm-policies ip xfrm policy
    ask xfrm-states ip xfrm state
    ask xfrm-default ip xfrm policy getdefault
fi
devices=$([ ! -e /proc/net/psched ] || tc qdisc show 2> /dev/null |
    awk '!/^qdisc noqueue/ {print $5}' | sort -u) || exit
for device in $devices; do
    for hook in root ingress egress; do
        ask "filter $device $hook" tc filter show dev "$device" $hook
    done
    ask "class $device" tc class show dev "$device"
done
ask processes sh -c 'own=$(readlink /proc/self/ns/net | tr "[]" "??")
    find /proc/[0-9]*/ns/net -maxdepth 0 -lname "$own" 2> /dev/null | sed "s,ns/net$,stat," |
        xargs -r cat 2> /dev/null; RAN'
for file in /etc/cni/net.d/*.conf /etc/cni/net.d/*.conflist FLANNEL_SUBNET \
    /var/lib/kubelet/config.yaml; do
    if [ -f "$file" ]; then ask "file $file" cat "$file"; fi
done
ask ipsets sh -c 'in=
    command -v ipset > /dev/null || in="WITH_CALICO"
    echo "in $in"; $in ipset save 2> /dev/null; true'  # where there is none, there are no sets
""".replace("WITH_CALICO", WITH_CALICO)
    .replace("FLANNEL_SUBNET", SUBNET)
    .replace("RAN", RAN)
)
"""What else is compared with the state that the lab made."""
_NODE = """
ask nftables nft -j list ruleset
save=iptables-save; proxy=
command -v $save > /dev/null || proxy=$(pgrep -o -x kube-proxy)
root=/proc/$proxy/root
if [ -n "$proxy" ] && ls -d $root/usr/sbin/$save > /dev/null 2>&1; then  # a link there is enough
    save="chroot $root /usr/sbin/$save"
fi
ask iptables $save -c  # a node need not have it: kube-proxy's image does
for control in /run/bird/bird.ctl /run/calico/bird.ctl; do
    if [ -S "$control" ]; then ask sessions birdc -s "$control" show protocols; fi
done
ask release cat /etc/os-release
if [ -S /run/openvswitch/db.sock ]; then
    within=$bound
    ask switch ovsdb-client --format=json dump unix:/run/openvswitch/db.sock Open_vSwitch
    for bridge in $(ovs-vsctl --timeout=5 list-br); do
        only=; if [ "$bridge" = br-int ]; then only=cookie=0/-1; fi  # most of OVN's have one
        ask "flows $bridge" ovs-ofctl --timeout=5 --no-stats dump-flows "$bridge" $only
    done
    for control in /run/openvswitch/ovs-vswitchd.*.ctl; do
        ask tunnel-neighbours ovs-appctl --timeout=5 --target="$control" tnl/neigh/show
    done
    within=
fi
if [ -S /run/ovn/ovnnb_db.sock ]; then
    within=$bound
    south=unix:/run/ovn/ovnsb_db.sock
    ask northbound ovsdb-client --format=json dump unix:/run/ovn/ovnnb_db.sock OVN_Northbound
    ask chassis ovsdb-client --format=json dump $south OVN_Southbound Chassis
    ask encaps ovsdb-client --format=json dump $south OVN_Southbound Encap
    ask bindings ovsdb-client --format=json dump $south OVN_Southbound Port_Binding
    within=
fi
"""
_COMPUTER = f"""
within=$bound
if [ -d /run/systemd/system ]; then
    ask units systemctl show \
        --property=Id,LoadState,UnitFileState,ActiveState,SubState,NRestarts {_UNITS}
fi
if [ -d /etc/kubernetes ]; then
    ask programs ps -e -o comm= -o state=
    ask disks sh -c 'df -P / /var/log/pods \
        /var/lib/kubelet /var/lib/containerd /var/lib/etcd; {RAN}'
    ask cni sh -c 'ls /etc/cni/net.d; {RAN}'
    ask expiry sh -c 'cd /var/lib/kubelet/pki && [ -e kubelet-client-current.pem ] || exit 0
        openssl x509 -noout -enddate -checkend 0 -in kubelet-client-current.pem; {RAN}'
fi
if [ -e {SUBNET} ]; then ask subnet cat {SUBNET}; fi
if [ -s {ADMIN} ]; then
    ask dns kubectl --kubeconfig={ADMIN} --request-timeout=5s --namespace=kube-system \
        get deployment coredns -o 'jsonpath={{.spec.replicas}}'
fi
if [ -e /var/lib/calico/nodename ]; then
    ask felix sh -c 'ps -e -o state= -o args= | grep "[c]alico-node -felix"; {RAN}'
    if [ -s {ADMIN} ]; then
        ask calico-pools kubectl --kubeconfig={ADMIN} --request-timeout=5s \
            get ippools.crd.projectcalico.org -o json
        ask calico-systems kubectl --kubeconfig={ADMIN} --request-timeout=5s get nodes -o \
            'custom-columns=:.metadata.name,:.metadata.annotations.projectcalico\\.org/ASNumber'
    fi
fi
ask sandboxes crictl pods -o json
for space in /run/netns/cni-*; do
    [ -e "$space" ] || continue
    name=${{space##*/}}
    ask "pod $name address" ip -n "$name" -json -details -statistics address
    ask "pod $name route" ip -n "$name" route show table all
    ask "pod $name neighbour" ip -n "$name" neighbour show nud all
    ask "pod $name sockets" nsenter "--net=$space" ss -H -l -n -t -u
    [ -e "$space" ] || ask "pod $name gone" true
done
"""
TAIL = f"printf '\\n{MARK} {_END}\\n'\nexit 0\n"
"""Not reached by a shell that cannot start a further process."""
OF_KERNEL = frozenset(
    {"address", "route", "neighbour", "proxy", "forwarding", "nftables", "iptables"}
    | {"iptables-legacy", "queues", "sockets", "settings"}
)
"""Queries that the kernel answers always: where one fails, nothing is known of that part."""
DISPENSABLE = frozenset({"iptables", "iptables-legacy", "queues"})
"""Those of them whose program a machine need not have: no check expects anything of their answers.
"""


class CutOffError(BrokenError):
    """The machine began to answer, but not to the end."""


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The answer to one query."""

    text: str
    """The tool's standard output; empty if it failed."""
    trouble: str = ""
    """Why there is no answer; empty if there is one."""
    installed: bool = True
    """False if the program, or the part of the kernel, is not there to be asked."""


def command(place: Place, *, whole: bool = False) -> tuple[str, ...]:
    """The command that runs all queries on a node or inside a pod.

    For a namespace, it leaves out what belongs to the surrounding computer. ``whole``: with all
    that is compared with the state that the lab made.
    """
    queries = {
        "computer": _TABLES + _NODE + _COMPUTER,
        "namespace": _TABLES + _NODE,
        "pod": _TABLES if whole else "",
    }
    script = _NETWORK + (_FURTHER if whole else "") + queries[place]
    return ("sh", "-c", Script(HEAD + script + TAIL, "lab/facts/questions.py"))


STATE_COMMAND = command("pod", whole=True)
"""The command that queries everything in the namespace it runs in."""


def is_whole(stdout: str) -> bool:
    """Whether the script ran to its end."""
    return stdout.rstrip("\n").endswith(f"\n{MARK} {_END}")


def answers(stdout: str, stderr: str) -> Mapping[str, CommandAnswer]:
    """Each query by name, with its answer.

    Raises CutOffError, with the last words of ``stderr``, if the script did not run to its end.
    """
    if not is_whole(stdout):
        lines = [line for line in stderr.splitlines() if line and not line.startswith(MARK)]
        last = one_line(lines[-1]) if lines else "no error message"
        raise CutOffError(
            "reading the state of a network",
            f"the queries were cut off: {last}",
            "check that the machine can start processes and has free memory, then try again",
        )
    complaints, sections = dict(_sections(stderr)), _sections(stdout)[:-1]
    return {name: _answer(body, complaints.get(name, [])) for name, body in sections}


def _sections(text: str) -> list[tuple[str, list[str]]]:
    sections: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith(f"{MARK} "):
            sections.append((line.removeprefix(f"{MARK} "), []))
        elif sections:
            sections[-1][1].append(line)
    return sections


def _answer(body: list[str], complaints: list[str]) -> CommandAnswer:
    ends = [number for number, line in enumerate(body) if line.startswith(f"{MARK}= ")]
    if not ends:
        return CommandAnswer("", "it was cut off")
    end = body[ends[-1]].removeprefix(f"{MARK}= ")
    if end.startswith(_ABSENT):
        program = end.removeprefix(_ABSENT).strip()
        return CommandAnswer("", f"there is no '{program}'", installed=False)
    if end.startswith(_LACKING):
        part = end.removeprefix(_LACKING).strip()
        return CommandAnswer("", f"the kernel has no {part}", installed=False)
    if end != "0":
        message = "; ".join(line.strip() for line in complaints if line.strip())
        return CommandAnswer("", f"exit code {end}" + (f": {message}" if message else ""))
    return CommandAnswer("\n".join(body[: ends[-1]]).strip("\n"))
