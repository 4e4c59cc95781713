import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from processes import run_program

from lab.machines.cluster.credentials import (
    CertificateSubject,
    issue,
    make_authority,
    public_key_pin,
)
from lab.machines.cluster.linux.hard_way import KEYS_DIRECTORY, Keys

CA = make_authority("test")


def extended(pem: str) -> list[object]:
    certificate = x509.load_pem_x509_certificate(pem.encode())
    return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_a_certificate_is_its_authoritys_and_has_the_names_it_was_made_for():
    pair = issue(CA, CertificateSubject("api", ("group",), ("api.lab", "10.0.0.1")))
    certificate = x509.load_pem_x509_certificate(pair.certificate.encode())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(CA.certificate.encode()))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["api.lab"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
    assert set(extended(pair.certificate)) == {
        ExtendedKeyUsageOID.CLIENT_AUTH,
        ExtendedKeyUsageOID.SERVER_AUTH,
    }


def test_one_that_only_asks_cannot_answer():
    pair = issue(CA, CertificateSubject("system:kube-proxy"))
    assert extended(pair.certificate) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_the_pin_is_what_the_documentation_computes(tmp_path):
    (tmp_path / "ca.crt").write_text(CA.certificate)
    line = "openssl x509 -pubkey -in ca.crt | openssl pkey -pubin -outform der | sha256sum"
    done = run_program(["sh", "-c", line], cwd=tmp_path, check=False)
    if "not found" in done.stderr:
        pytest.skip("openssl is not installed")
    assert public_key_pin(CA.certificate) == f"sha256:{done.stdout.split()[0]}"


def test_no_key_is_in_a_repr():
    assert "PRIVATE" not in repr(CA)


# SECURITY.md: Secrets are each lab's own.
def test_keys_are_made_once_and_kept_private(tmp_path):
    subject = CertificateSubject("x", (), ("h",))
    first = (Keys(tmp_path).authority(), Keys(tmp_path).issued("x", subject))
    again = (Keys(tmp_path).authority(), Keys(tmp_path).issued("x", subject))
    assert first == again
    assert Keys(tmp_path).plane() == Keys(tmp_path).plane()
    for path in (tmp_path / KEYS_DIRECTORY).iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_another_address_or_authority_makes_another_certificate(tmp_path):
    first = Keys(tmp_path).issued("x", CertificateSubject("x", (), ("h",)))
    assert Keys(tmp_path).issued("x", CertificateSubject("x", (), ("h", "i"))) != first
    (tmp_path / KEYS_DIRECTORY / "ca.json").unlink()
    assert Keys(tmp_path).issued("x", CertificateSubject("x", (), ("h",))) != first
