"""Makes what the services of the compose stack share before any of them starts: keys, certificates, tokens, configuration.

Each service sees only the volume that it needs, mounted below /shared here:

    slurm        slurm.conf and its company, Slurm's key, the key of its JWTs      the four services of Slurm
    database     what MariaDB does first                                           mariadb
    kubernetes   the API server's certificate, the key of service accounts, the
                 table of bearer tokens                                            kube-apiserver, kube-controller-manager
    admin        kubeconfigs of the cluster's administrator                        what plays a person or a kubelet
    bridge       the bridge's own kubeconfig and Slurm token                       bridge
    rules        the alarms of manifests/monitoring, as Prometheus reads them      prometheus

Nothing is made twice: a stack that is stopped and started again keeps its keys; `docker compose down -v` ends them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import os
import secrets
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

SHARED = Path("/shared")
GIVEN = Path("/compose")
RULES = Path("/monitoring/rules.yaml")
SLURM_UID = 64030  # Debian's
SERVICE_UID = 65532  # of the services that need no user of their own
DAYS = 365
INSIDE, OUTSIDE = "https://kube-apiserver:6443", f"https://127.0.0.1:{os.environ.get('KUBERNETES_PORT', '6443')}"
BRIDGE = "system:serviceaccount:slurm-bridge:slurm-bridge"


def main() -> None:
    """Make everything, unless it is there."""
    done = SHARED / "admin" / "made"
    if done.exists():
        print("init: keys and configuration are there")
        return
    password = secrets.token_hex(16)
    jwt_key = secrets.token_bytes(32)
    _slurm(SHARED / "slurm", password, jwt_key)
    _database(SHARED / "database", password)
    authority, admin, bridge = _kubernetes(SHARED / "kubernetes")
    _write(SHARED / "admin" / "kubeconfig", kubeconfig(INSIDE, authority, admin), SERVICE_UID)
    _write(SHARED / "admin" / "kubeconfig-outside", kubeconfig(OUTSIDE, authority, admin), SERVICE_UID)
    _write(SHARED / "bridge" / "kubeconfig", kubeconfig(INSIDE, authority, bridge), SERVICE_UID)
    _write(SHARED / "bridge" / "slurm-token", slurm_token(jwt_key, "slurm", time.time()), SERVICE_UID)
    _write(SHARED / "rules" / "slurm-bridge.yaml", rules(RULES.read_text(encoding="utf-8")), 0, mode=0o444)
    done.touch()
    print("init: made keys, certificates, tokens and configuration")


def slurm_token(key: bytes, user: str, now: float) -> str:
    """A JWT for a Slurm user, signed with the cluster's key."""
    claims = {"iat": int(now), "exp": int(now) + DAYS * 86400, "sun": user}
    said = b".".join(_url(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return (said + b"." + _url(hmac.new(key, said, hashlib.sha256).digest())).decode()


def kubeconfig(server: str, authority: bytes, token: str) -> str:
    """The kubeconfig of one bearer token, everything in one file."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(authority).decode()}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "compose", "cluster": cluster}],
            "users": [{"name": "compose", "user": {"token": token}}],
            "contexts": [{"name": "compose", "context": {"cluster": "compose", "user": "compose"}}],
            "current-context": "compose",
        }
    )


def rules(prometheus_rule: str) -> str:
    """What the Prometheus operator makes of a PrometheusRule: the file that Prometheus reads."""
    groups = yaml.safe_load(prometheus_rule)["spec"]["groups"]
    return yaml.safe_dump({"groups": groups}, sort_keys=False)


def _slurm(folder: Path, password: str, jwt_key: bytes) -> None:
    for name in ("slurm.conf", "cgroup.conf"):
        shutil.copyfile(GIVEN / "slurm" / name, folder / name)
    database = (GIVEN / "slurm" / "slurmdbd.conf").read_text(encoding="utf-8")
    token = slurm_token(jwt_key, "slurm", time.time())
    # slurmdbd refuses a file of any other mode than 600 and 640.
    keys: dict[str, bytes | str] = {
        "slurmdbd.conf": f"{database}StoragePass={password}\n",
        "slurm.key": secrets.token_bytes(1024),
        "jwt_hs256.key": jwt_key,
        "token": token,
    }
    for name, content in keys.items():
        _write(folder / name, content, 0)
    for path in (folder, *folder.iterdir()):
        os.chown(path, SLURM_UID, SLURM_UID)


def _database(folder: Path, password: str) -> None:
    lines = (
        "create database if not exists slurm_acct_db;",
        f"create user if not exists slurm@'%' identified by '{password}';",
        "grant all on slurm_acct_db.* to slurm@'%';",
        "",
    )
    # MariaDB's user has another number in each image; nothing else mounts this volume.
    _write(folder / "init.sql", "\n".join(lines), 0, mode=0o444)


def _kubernetes(folder: Path) -> tuple[bytes, str, str]:
    """Returns the authority's certificate, the administrator's token and the bridge's."""
    admin, bridge = secrets.token_hex(16), secrets.token_hex(16)
    members = "system:serviceaccounts,system:serviceaccounts:slurm-bridge"
    tokens = f'{admin},admin,admin,system:masters\n{bridge},{BRIDGE},slurm-bridge,"{members}"\n'
    authority, certificate, key = _certificates()
    made: dict[str, bytes | str] = {
        "ca.crt": authority,
        "apiserver.crt": certificate,
        "apiserver.key": key,
        "service-accounts.key": _pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)),
        "tokens.csv": tokens,
    }
    for name, content in made.items():
        _write(folder / name, content, SERVICE_UID)
    return authority, admin, bridge


def _certificates() -> tuple[bytes, bytes, bytes]:
    """An authority of this stack alone, and the API server's certificate and key.  The authority's key is kept nowhere."""
    now = datetime.now(UTC)
    own, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "slurm-bridge compose")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    names = [x509.DNSName(name) for name in ("kube-apiserver", "localhost", "kubernetes.default.svc")]
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", "10.96.0.1")]

    def signed(name: x509.Name, key: ec.EllipticCurvePrivateKey, what: x509.ExtensionType) -> x509.Certificate:
        builder = x509.CertificateBuilder(issuer, name, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(minutes=5)).not_valid_after(now + timedelta(days=DAYS))
        return builder.add_extension(what, critical=isinstance(what, x509.BasicConstraints)).sign(own, hashes.SHA256())

    authority = signed(issuer, own, x509.BasicConstraints(ca=True, path_length=0))
    certificate = signed(subject, server, x509.SubjectAlternativeName([*names, *addresses]))
    encoding = serialization.Encoding.PEM
    return authority.public_bytes(encoding), certificate.public_bytes(encoding), _pem(server)


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


def _write(path: Path, content: bytes | str, owner: int, mode: int = 0o600) -> None:
    path.unlink(missing_ok=True)  # of an init that was killed half-way
    path.touch(mode=0o600)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)
    if owner:
        os.chown(path, owner, owner)


def _url(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


if __name__ == "__main__":
    main()
