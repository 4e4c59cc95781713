"""Where the input of an image comes from, and what it must be."""

from hashlib import sha256, sha512
from pathlib import Path

import pytest

from lab._errors import PreflightError
from lab.inventory.inventory import ImageSource, Inventory
from lab.machines.images import download, inputs
from lab.machines.images.inputs import ImageInputs
from lab.machines.images.recipe import Cloud, Iso, Recipe

CONTENT = b"a vendor's disk"
SHA256 = sha256(CONTENT).hexdigest()
SHA512 = sha512(CONTENT).hexdigest()
PLAIN = Recipe(
    name="tiny",
    summary="",
    os="linux",
    architecture="x86_64",
    disk=1,
    firmware="bios",
    first_boot="cloud-init",
    user="root",
    cloud=Cloud(url="https://vendor.example/tiny.qcow2"),
    path="image.yaml",
)
ISO = PLAIN.replace(
    cloud=None,
    iso=Iso(
        medium="the first DVD",
        kernel="/k",
        initrd="/i",
        arguments="quiet",
        answers="initrd",
        memory=512,
        minutes=1,
        done="done",
    ),
)


def stock(**image: str) -> Inventory:
    return Inventory(images={"tiny": ImageSource(**image)} if image else {})


def cloud(url: str, sha256: str | None = None, checksums: str | None = None) -> Recipe:
    return PLAIN.replace(cloud=Cloud(url=url, sha256=sha256, checksums=checksums))


@pytest.mark.parametrize(
    ("recipe", "inventory", "url", "path", "digest"),
    [
        (PLAIN, stock(), "https://vendor.example/tiny.qcow2", None, None),
        (PLAIN, stock(sha256="ab"), "https://vendor.example/tiny.qcow2", None, "sha256:ab"),
        (PLAIN, stock(url="http://near.example/t"), "http://near.example/t", None, None),
        (PLAIN, stock(url="/srv/t.qcow2"), None, "/srv/t.qcow2", None),
        (PLAIN, stock(url="file:///srv/a%20b"), None, "/srv/a b", None),
        (
            cloud("https://v.example/t", SHA256),
            stock(),
            "https://v.example/t",
            None,
            f"sha256:{SHA256}",
        ),
        (
            cloud("https://v.example/t", SHA256),
            stock(sha256="ab"),
            "https://v.example/t",
            None,
            "sha256:ab",
        ),
        (ISO, stock(), None, None, None),
    ],
)
def test_inventory_counts_more_than_recipe(recipe, inventory, url, path, digest):
    need = inputs.needs(recipe, inventory)[0]
    assert (need.url, need.path, need.digest) == (
        url,
        path and Path(path),
        digest,
    )


LISTED = {
    f"{SHA256}  tiny.qcow2": f"sha256:{SHA256}",
    f"{SHA256} *tiny.qcow2": f"sha256:{SHA256}",
    f"{SHA512}  ./tiny.qcow2": f"sha512:{SHA512}",
    f"SHA256 (tiny.qcow2) = {SHA256.upper()}": f"sha256:{SHA256}",
    f"# tiny.qcow2: 5 bytes\nSHA256 (tiny.qcow2) = {SHA256}": f"sha256:{SHA256}",
    f"{SHA256}  other-tiny.qcow2": None,
    "abc  tiny.qcow2": None,
    "": None,
}


def test_digest_is_found_in_a_vendors_list():
    found = {
        line: download.find_digest(f"{SHA256}  nothing\n{line}\n", "tiny.qcow2") for line in LISTED
    }
    assert found == LISTED


def test_longest_mirror_that_fits_is_taken():
    mirrors, meant = {"https://other.example/": "http://x/"}, "https://vendor.example/a/b"
    assert download.rewrite_url(meant, mirrors) == meant
    mirrors["https://vendor.example/"] = "http://near/"
    assert download.rewrite_url(meant, mirrors) == "http://near/a/b"
    mirrors["https://vendor.example/a/"] = "http://y/"
    assert download.rewrite_url(meant, mirrors) == "http://y/b"


def test_digest_of_a_list_is_asked_once_and_kept(web, tmp_path):
    web.files["/SUMS"] = f"{SHA512}  tiny.qcow2\n".encode()
    recipe = cloud(f"{web.url}/tiny.qcow2", checksums=f"{web.url}/SUMS")
    assert ImageInputs(recipe, stock(), tmp_path).known_digests() is None
    digests = ImageInputs(recipe, stock(), tmp_path).digests()
    assert digests == {"file": f"sha512:{SHA512}"}
    web.files["/SUMS"] = b""
    assert ImageInputs(recipe, stock(), tmp_path).digests() == digests
    assert ImageInputs(recipe, stock(), tmp_path).known_digests() == digests
    assert [path for path, _ in web.asked] == ["/SUMS"]


@pytest.mark.parametrize(
    ("sums", "words"),
    [(b"", "does not list 'tiny.qcow2'"), (None, "404 Not Found")],
    ids=["not listed", "no list"],
)
def test_list_without_the_file_is_refused(sums, words, web, tmp_path):
    if sums is not None:
        web.files["/SUMS"] = sums
    recipe = cloud(f"{web.url}/tiny.qcow2", checksums=f"{web.url}/SUMS")
    with pytest.raises(PreflightError, match=words):
        ImageInputs(recipe, stock(), tmp_path).digests()


def test_address_that_nobody_vouches_for_is_refused(tmp_path):
    with pytest.raises(PreflightError, match=r"\[images.tiny\] sha256 = "):
        ImageInputs(PLAIN, stock(), tmp_path).digests()


def test_missing_medium_is_refused_with_what_to_get_and_where_to_put_it(tmp_path):
    with pytest.raises(PreflightError, match="it needs the first DVD") as refused:
        ImageInputs(ISO, stock(), tmp_path).digests()
    assert refused.value.exit_code == 4
    assert '[images.tiny] path = "/where/it/is.iso"' in refused.value.hint
    assert ImageInputs(ISO, stock(), tmp_path).known_digests() is None


def test_local_file_is_read_once_until_it_changes(tmp_path, monkeypatch):
    file, kept = tmp_path / "tiny.qcow2", tmp_path / "downloads"
    file.write_bytes(CONTENT)
    inventory = stock(url=str(file))
    assert ImageInputs(PLAIN, inventory, kept).known_digests() is None
    digests = ImageInputs(PLAIN, inventory, kept).digests()
    assert digests == {"file": f"sha256:{SHA256}"}
    with monkeypatch.context() as without:
        without.setattr(download, "hash_file", pytest.fail)
        assert ImageInputs(PLAIN, inventory, kept).digests() == digests
        assert ImageInputs(PLAIN, inventory, kept).known_digests() == digests
    file.write_bytes(CONTENT + b"!")
    assert ImageInputs(PLAIN, inventory, kept).digests() != digests


def test_local_file_that_is_another_one_is_refused_with_both_digests(tmp_path):
    file = tmp_path / "tiny.qcow2"
    file.write_bytes(CONTENT)
    with pytest.raises(PreflightError) as refused:
        ImageInputs(PLAIN, stock(url=str(file), sha256="ab" * 32), tmp_path).digests()
    assert f"expected sha256:{'ab' * 32}" in str(refused.value)
    assert f"got sha256:{SHA256}" in str(refused.value)
    assert file.exists()


def test_download_becomes_the_input_and_is_forgotten_after(web, tmp_path):
    web.files["/tiny.qcow2"] = CONTENT
    recipe = cloud(f"{web.url}/tiny.qcow2", SHA256)
    own = ImageInputs(recipe, stock(), tmp_path)
    file = own.fetch_file()
    assert file.read_bytes() == CONTENT
    own.remove_downloads()
    assert not file.exists()
