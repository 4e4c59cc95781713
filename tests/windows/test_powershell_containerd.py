"""The tables of containerd's configuration that the script sets are those that containerd has.

The script is not run: the names that it sets are read out of it, and looked up in what containerd
2.3 and 1.7 print by ``config default``, cut down to the tables at hand.
"""

from __future__ import annotations

import re
import tomllib

import pytest
from powershell_syntax import load

CURRENT = """
version = 4
[plugins]
  [plugins.'io.containerd.cri.v1.images']
    [plugins.'io.containerd.cri.v1.images'.pinned_images]
      sandbox = 'registry.k8s.io/pause:3.10'
    [plugins.'io.containerd.cri.v1.images'.registry]
      config_path = ''
  [plugins.'io.containerd.cri.v1.runtime']
    [plugins.'io.containerd.cri.v1.runtime'.cni]
      bin_dir = ''
      bin_dirs = ['/opt/cni/bin']
      conf_dir = '/etc/cni/net.d'
"""
OLD = """
version = 2
[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "registry.k8s.io/pause:3.8"
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/opt/cni/bin"
      conf_dir = "/etc/cni/net.d"
    [plugins."io.containerd.grpc.v1.cri".registry]
      config_path = ""
"""
SETS = {
    "plugins.io.containerd.grpc.v1.cri": ({"sandbox_image"}, OLD),
    "plugins.io.containerd.grpc.v1.cri.cni": ({"bin_dir", "conf_dir"}, OLD),
    "plugins.io.containerd.grpc.v1.cri.registry": ({"config_path"}, OLD),
    "plugins.io.containerd.cri.v1.images.pinned_images": ({"sandbox"}, CURRENT),
    "plugins.io.containerd.cri.v1.images.registry": ({"config_path"}, CURRENT),
    "plugins.io.containerd.cri.v1.runtime.cni": ({"bin_dir", "bin_dirs", "conf_dir"}, CURRENT),
}


def set_by_script():
    """Keys by table, as the script has them: its variables put in."""
    text = load("containerd.ps1").source.decode()
    variables = dict(re.findall(r"\$(cri|images|cni) = '([^']+)'", text))
    found = {}
    for table, key in re.findall(r"@\(\"?(\$\w+[.\w]*)\"?, '(\w+)',", text):
        name, _, rest = table[1:].partition(".")
        full = f"{variables[name]}.{rest}" if rest else variables[name]
        found.setdefault(full, set()).add(key)
    return found


def tables(text):
    """Tables by their name without quotes, the script's way of comparing them."""
    headers = re.findall(r"^\s*\[([^\[\]]+)\]\s*$", text, re.MULTILINE)
    return {re.sub(r"[\"']", "", header).strip() for header in headers}


def test_script_sets_what_we_know_of_and_nothing_else():
    assert set_by_script() == {table: keys for table, (keys, _) in SETS.items()}


@pytest.mark.parametrize("table", SETS)
def test_table_and_keys_are_in_what_containerd_prints(table):
    keys, default = SETS[table]
    assert table in tables(default)
    (header,) = (
        one
        for one in re.findall(r"^\s*(\[[^\[\]]+\])\s*$", default, re.MULTILINE)
        if re.sub(r"[\"'\[\]]", "", one) == table
    )
    body = default.split(header)[1].split("[plugins")[0]
    assert keys <= set(re.findall(r"^\s*(\w+) =", body, re.MULTILINE))


@pytest.mark.parametrize("text", [CURRENT, OLD])
def test_samples_are_toml(text):
    assert tomllib.loads(text)["version"] in {2, 4}
