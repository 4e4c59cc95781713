import os
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from broken_files import BrokenFiles
from hypothesis import example, given
from hypothesis import strategies as st

from lab._errors import InventoryError
from lab.inventory import reader
from lab.inventory.inventory import Hypervisor, ImageSource, Inventory, Secret
from lab.inventory.loader import current, find, load
from lab.scenario import source
from lab.scenario.validation import keys, schema_of

ROOT = Path(__file__).parents[3]
CASES = ROOT / "tests" / "cases" / "inventory"
EVERYTHING = CASES / "valid" / "everything.toml"
ONE = '[hypervisors.rack1]\nuri = "qemu:///system"\n'
TABLE = BrokenFiles(CASES / "broken.txt", ".toml", "inventory")
BROKEN = TABLE.read()
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "lab.toml"


def said_of(path: Path) -> str:
    with pytest.raises(InventoryError) as caught:
        load(path)
    assert caught.value.exit_code == 2
    return str(caught.value)


# SECURITY.md: An inventory says where a secret is.
# SECURITY.md: Connections are encrypted, and hosts are known beforehand.
@pytest.mark.parametrize("name", BROKEN)
def test_broken_file_is_reported_by_key_with_what_to_do(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("valid").mkdir()
    Path("valid/readable-by-all").write_text("hunter3")
    Path("valid/readable-by-all").chmod(0o644)
    said = said_of(BROKEN[name].write(Path()))
    assert "hunter" not in said
    TABLE.check(BROKEN[name], said.replace(f"{tmp_path}/", "/"))


def test_defaults_stand_for_what_is_left_out(file):
    file.write_text(ONE)
    assert load(file) == Inventory(
        hypervisors={"rack1": Hypervisor(name="rack1", uri="qemu:///system", line=1)},
        path=str(file),
    )


@pytest.mark.parametrize("written", ["", "# nothing yet\n", 'owner = "me"\n'])
def test_file_without_hypervisors_is_an_inventory_without_them(file, written):
    file.write_text(written)
    assert load(file).hypervisors == load(Path(os.devnull)).hypervisors == {}


def test_every_key_arrives_converted():
    inventory = load(EVERYTHING)
    beside = EVERYTHING.parent
    assert [*inventory.hypervisors.values()] == [
        Hypervisor(
            name="rack1",
            uri="qemu+ssh://lab@rack1.example:2222/system?keyfile=/etc/hybridlab/key",
            vcpus=64,
            memory=256 * 1024,
            disk=2048,
            tags=frozenset({"ssd", "windows"}),
            storage="/var/lib/labs",
            address="192.0.2.11",
            mtu=9000,
            acceleration="kvm",
            parallel_boots=8,
            line=12,
        ),
        Hypervisor(
            name="rack2", uri="qemu+tls://rack2.example/system", storage="/srv/labs", line=25
        ),
    ]
    assert inventory.management.cidr == IPv4Network("10.66.0.0/16")
    assert (inventory.owner, inventory.expiry) == ("team-network", 2 * 86_400)
    assert inventory.cache == Path.home() / ".cache" / "labs"
    assert inventory.images == {
        "windows-server-2022": ImageSource(
            url=str(beside / "isos" / "server-2022.iso"), sha256="abcdef" + "0" * 58
        ),
        "debian-12": ImageSource(url="https://images.example/debian-12.qcow2", sha256=None),
    }
    assert inventory.mirrors == {"https://images.example/": "http://mirror.lan/images/"}
    assert inventory.proxies.by_name() == {
        "https": "http://proxy.example:3128",
        "no_proxy": "localhost,.lan",
    }
    assert inventory.secrets == {
        "windows-admin": Secret(file=beside / "secrets" / "admin"),
        "domain-join": Secret(env="DOMAIN_JOIN"),
    }
    assert inventory.path == str(EVERYTHING)


def test_commented_example_is_valid_and_shows_every_key():
    example = ROOT / "docs" / "lab.example.toml"
    assert [*load(example).hypervisors] == ["rack1", "rack2"]
    text = example.read_text(encoding="utf-8")
    assert all(f"{key} = " in text or f"[{key}" in text for key in keys(schema_of(Inventory), ()))


def test_windows_line_ends_and_byte_order_mark_are_read(file):
    file.write_text(ONE)
    plain = load(file)
    file.write_bytes(b"\xef\xbb\xbf" + ONE.replace("\n", "\r\n").encode())
    assert load(file) == plain


# SECURITY.md: An inventory says where a secret is.
def test_secret_that_only_its_owner_reads_is_fine(file):
    secret = file.parent / "admin"
    secret.write_text("x")
    secret.chmod(0o600)
    file.write_text('[secrets.admin]\nfile = "admin"\n')
    assert load(file).secrets == {"admin": Secret(file=secret)}
    secret.chmod(0o640)
    assert "can be read by others: its mode is 0640; chmod 600" in said_of(file)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "there is no such file; check the path"),
        (b"#" * (256 * 1024 + 1), "the file is larger than 256 KiB; no inventory needs this much"),
        (b"a = " + b"[" * 20_000 + b"]" * 20_000, "nested too deeply"),
        (b"a = " + b"1" * 5000, "more than 4300 digits"),
    ],
)
def test_file_that_cannot_be_parsed_is_reported(file, data, said):
    if data is not None:
        file.write_bytes(data)
    assert f"{file}: " in said_of(file)
    assert said in said_of(file)


TOKENS = st.sampled_from([*".= \n[]{},\"'#\\ab1é", '"""', "'''", "true", "a = 1\n", "[a]\n", "x=["])


@given(st.lists(TOKENS, max_size=40).map("".join))
@example('a = 1\na = 1\n"""""""""')
@example("a = 1\n[a.b]\n")
def test_any_text_is_parsed_or_reported_within_the_file(text):
    try:
        reader.parse(text)
    except reader.StopError as stop:
        finding = stop.finding
    else:
        return
    assert finding.line <= text.count("\n") + 1
    assert finding.what
    assert finding.hint


def test_variable_goes_before_every_file(file, tmp_path):
    file.write_text(ONE)
    assert find({"HYBRIDLAB_INVENTORY": "other.toml"}, tmp_path) == (tmp_path / "other.toml", True)
    assert find({"HYBRIDLAB_INVENTORY": "/x/other.toml"}, tmp_path) == (Path("/x/other.toml"), True)
    with pytest.raises(InventoryError, match="there is no such file"):
        current({"HYBRIDLAB_INVENTORY": "other.toml"}, tmp_path)


def test_directory_then_xdg_then_home_is_looked_in(file, tmp_path):
    home = {"HOME": str(tmp_path)}
    assert current({}, tmp_path) is None
    assert current(home, tmp_path) is None
    for folder in (".config", "config"):
        (tmp_path / folder / "hybridlab").mkdir(parents=True)
        (tmp_path / folder / "hybridlab" / "lab.toml").write_text("")
    own = tmp_path / ".config" / "hybridlab" / "lab.toml"
    shared = tmp_path / "config" / "hybridlab" / "lab.toml"
    assert find(home, tmp_path / "elsewhere") == (own, False)
    assert find(home | {"XDG_CONFIG_HOME": "relative"}, tmp_path / "elsewhere") == (own, False)
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HYBRIDLAB_INVENTORY": ""}
    assert find(environment, tmp_path) == (shared, False)
    file.write_text(ONE)
    assert find(environment, tmp_path) == (file, False)


# SECURITY.md: An inventory is trusted.
@AS_ROOT
@pytest.mark.parametrize("given_away", ["lab.toml", "."])
def test_file_in_this_directory_that_another_user_owns_is_refused(
    file, tmp_path, given_away, monkeypatch
):
    file.write_text(ONE)
    os.chown(tmp_path / given_away, 65534, 65534)
    with pytest.raises(InventoryError, match="belongs to nobody") as caught:
        current({}, tmp_path)
    assert f"HYBRIDLAB_INVENTORY={file}" in str(caught.value)
    assert current({"HYBRIDLAB_INVENTORY": str(file)}, tmp_path) is not None
    monkeypatch.setenv("SUDO_UID", "65534")
    assert current({}, tmp_path) is not None


# SECURITY.md: An inventory is trusted.
@AS_ROOT
def test_link_in_this_directory_that_another_user_owns_is_refused(file, tmp_path):
    """Its owner can have it lead elsewhere after it was looked at."""
    own = tmp_path / "own.toml"
    own.write_text(ONE)
    file.symlink_to(own)
    assert current({}, tmp_path) is not None
    os.lchown(file, 65534, 65534)
    with pytest.raises(InventoryError, match="belongs to nobody"):
        current({}, tmp_path)


# SECURITY.md: An inventory is trusted.
@AS_ROOT
@pytest.mark.parametrize("then", ["mine", "none"])
def test_file_that_is_read_is_the_one_that_was_looked_at(file, tmp_path, monkeypatch, then):
    """Its owner puts another one in its place, once it is open."""
    monkeypatch.setenv("SUDO_UID", "")
    tmp_path.chmod(0o1777)  # where anybody may put a file, and take it away
    file.write_text(ONE)
    os.chown(file, 65534, 65534)
    look = source.read_bytes

    def look_after_the_stranger(path, kind, seen):
        def swapped(descriptor):
            file.unlink()
            if then == "mine":
                file.write_text("")
            seen(descriptor)

        return look(path, kind, swapped)

    monkeypatch.setattr(source, "read_bytes", look_after_the_stranger)
    with pytest.raises(InventoryError, match="belongs to nobody"):
        current({}, tmp_path)


@pytest.mark.parametrize(
    ("shared", "mode", "who"),
    [
        ("here/lab.toml", 0o666, "everyone"),
        ("here/lab.toml", 0o1666, "everyone"),
        ("here", 0o777, "everyone"),
        (".", 0o777, "everyone"),
        ("here/lab.toml", 0o664, "group 'daemon'"),
        ("here", 0o775, "group 'daemon'"),
    ],
)
def test_file_in_this_directory_that_others_may_write_is_refused(tmp_path, shared, mode, who):
    here = tmp_path / "here"
    here.mkdir()
    (here / "lab.toml").write_text(ONE)
    path = tmp_path / shared
    before = path.stat()
    if "group" in who:
        if os.geteuid() != 0:
            pytest.skip("only root can give a file to any group")
        os.chown(path, -1, 1)
    path.chmod(mode)
    with pytest.raises(InventoryError, match=f"{who} may write '{path}'"):
        current({}, here)
    os.chown(path, -1, before.st_gid)
    path.chmod(before.st_mode)
    assert current({}, here) is not None


# SECURITY.md: An inventory is trusted.
@pytest.mark.parametrize("variable", ["HOME", "XDG_CONFIG_HOME"])
def test_file_of_the_user_that_others_may_write_is_refused(tmp_path, variable):
    path = tmp_path / (".config" if variable == "HOME" else "") / "hybridlab" / "lab.toml"
    path.parent.mkdir(parents=True)
    path.write_text(ONE)
    environment = {variable: str(tmp_path)}
    assert current(environment, tmp_path / "elsewhere") is not None
    path.chmod(0o666)
    with pytest.raises(InventoryError, match=f"everyone may write '{path}'") as caught:
        current(environment, tmp_path / "elsewhere")
    assert f"try 'chmod go-w {path}', or, if you trust it, export" in str(caught.value)
    named = {"HYBRIDLAB_INVENTORY": str(path)}
    assert current(named, tmp_path) is not None
