"""Set-up and run of the tests: certificates of a company's proxy, missing data, make targets."""

import datetime as dt
import http.server
import ipaddress
import os
import shutil
import ssl
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
UV = ROOT / "tools" / "uv"
SYSTEM_STORE = Path("/etc/ssl/certs")
# a namespace of its own, in which a folder replaces the system's certificates
ELSEWHERE = ["unshare", "--map-root-user", "--mount", "sh", "-c",
             f'mount --bind "$1" {SYSTEM_STORE} && shift && exec "$@"', "sh"]  # fmt: skip


def certificate(name, issuer=None, issuer_key=None):
    """Return a certificate for a name and this machine, and its key; self-signed if no issuer is given."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(issuer or subject, subject, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(here, critical=False)
        .sign(issuer_key or key, hashes.SHA256())
    )
    return made, key


def distribution(folder):
    """Write a wheel with one module."""
    info = "tiny-1.0.dist-info/"
    files = {
        "tiny.py": "",
        f"{info}METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        f"{info}WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}RECORD"])
    wheel = "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder / wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    (folder / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>')


@pytest.fixture
def company(tmp_path):
    """A package index whose certificate only the company's issuer has signed: its URL and certificate."""
    authority, authority_key = certificate("company")
    mine, key = certificate("index", authority.subject, authority_key)
    pem = serialization.Encoding.PEM
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    served = tmp_path / "served.pem"
    served.write_bytes(key.private_bytes(pem, *plain) + mine.public_bytes(pem))
    (tmp_path / "web" / "tiny").mkdir(parents=True)
    distribution(tmp_path / "web" / "tiny")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *given):
            super().__init__(*given, directory=tmp_path / "web")

        def log_message(self, *_):
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(served)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"https://127.0.0.1:{server.server_port}", authority.public_bytes(pem)
        server.shutdown()
        serving.join()


def install(uv, index, store, folder):
    """Install from an index, with a folder as the system's certificates."""
    theirs = ("UV_", "SSL_", "PIP_", "REQUESTS_")
    names = [name for name in os.environ if not name.startswith(theirs)]
    environment = {name: os.environ[name] for name in names if "proxy" not in name.lower()}
    return subprocess.run(
        [*ELSEWHERE, store, uv, "pip", "install", "--no-config", "--no-cache", "--python", sys.executable,
         "--index-url", index, "--target", folder, "tiny"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_uv_uses_the_certificates_of_the_system(company, tmp_path):
    """Set-up works behind a proxy whose certificate is only in the system's store."""
    if not (shutil.which("uv") or (ROOT / ".tools" / "bin" / "uv").exists()):
        pytest.skip("there is no uv, and fetching it needs a network")
    store = tmp_path / "store"
    store.mkdir()
    tried = subprocess.run([*ELSEWHERE, store, "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip("this system grants no mount namespace: its certificates cannot be replaced")
    index, authority = company
    other, _ = certificate("somebody else")
    (store / "other.crt").write_bytes(other.public_bytes(serialization.Encoding.PEM))
    (store / "ca-certificates.crt").write_bytes((store / "other.crt").read_bytes())
    unknown = install(UV, index, store, tmp_path / "first")
    assert "invalid peer certificate" in unknown.stderr
    (store / "ca-certificates.crt").write_bytes(authority)
    known = install(UV, index, store, tmp_path / "second")
    assert known.returncode == 0, known.stderr
    assert (tmp_path / "second" / "tiny.py").exists()


WITHOUT_DATA = '''
def test_of_data(retail):
    """Needs the data."""


def test_of_none():
    """Needs nothing."""
'''


def test_a_run_says_what_it_has_skipped_for_want_of_data(tmp_path):
    """At its end, a run lists the tests that were skipped because of missing data."""
    folder = tmp_path / "repository" / "tests"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "test_some.py").write_text(WITHOUT_DATA)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider",
         "--rootdir", folder, folder],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    titles = [at for at, line in enumerate(lines) if "1 TESTS DID NOT RUN FOR WANT OF DATA" in line]
    assert len(titles) == 1, done.stdout + done.stderr
    assert lines[titles[0] + 1].endswith("test_some.py::test_of_data")
    assert "1 passed, 1 skipped" in lines[-1]


def test_each_target_of_make_stands_once():
    """Each make target occurs once, because make would ignore the first of two."""
    done = subprocess.run(
        ["make", "-n", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
