"""Kubeconfig files for a fake API server, with each form of credentials a proxy may be given."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from attrs import field, frozen

from kproxy_core.testing.fake_api.certificates import Certificate


@frozen(kw_only=True)
class Cluster:
    """The ``cluster`` of a kubeconfig: where the server is and how it is verified. Empty values are left out."""

    server: str
    authority: bytes = b""
    authority_file: Path | None = None
    proxy_url: str = ""
    tls_server_name: str = ""

    def entry(self) -> dict[str, Any]:
        """Write it as the file has it."""
        entries = {
            "server": self.server,
            "certificate-authority-data": base64.b64encode(self.authority).decode(),
            "certificate-authority": str(self.authority_file or ""),
            "proxy-url": self.proxy_url,
            "tls-server-name": self.tls_server_name,
        }
        return {name: value for name, value in entries.items() if value}


@frozen(kw_only=True)
class User:
    """The ``user`` of a kubeconfig: a token, a file with one, certificate files, or a program that prints credentials."""

    token: str = ""
    token_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    exec_command: Sequence[str] = ()
    exec_environment: Mapping[str, str] = field(factory=dict)

    def entry(self) -> dict[str, Any]:
        """Write it as the file has it."""
        entries: dict[str, Any] = {
            "token": self.token,
            "tokenFile": str(self.token_file or ""),
            "client-certificate": str(self.certificate_file or ""),
            "client-key": str(self.key_file or ""),
        }
        if self.exec_command:
            entries["exec"] = {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": self.exec_command[0],
                "args": list(self.exec_command[1:]),
                "env": [{"name": name, "value": value} for name, value in self.exec_environment.items()],
                "interactiveMode": "Never",
            }
        return {name: value for name, value in entries.items() if value}


def write_kubeconfig(path: Path, cluster: Cluster, user: User, context: str = "fake") -> Path:
    """Write a kubeconfig with one context and return its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster.entry()}],
        "users": [{"name": context, "user": user.entry()}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "current-context": context,
    }
    replace_file(path, yaml.safe_dump(config).encode())
    return path


def write_certificate(directory: Path, certificate: Certificate, name: str = "client") -> tuple[Path, Path]:
    """Write a certificate and its key, replacing older ones; return their paths."""
    certificate_file, key_file = directory / f"{name}.crt", directory / f"{name}.key"
    replace_file(key_file, certificate.key)
    replace_file(certificate_file, certificate.certificate)
    return certificate_file, key_file


def replace_file(path: Path, content: bytes) -> None:
    """Put a file in the place of another in one step, as kubelet and certificate tools do."""
    new = path.with_name(f".{path.name}.new")
    new.touch(mode=0o600)
    new.write_bytes(content)
    new.replace(path)
