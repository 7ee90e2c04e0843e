"""ApiAccess: where the API server is and how to be let in, from a kubeconfig or from a Pod's service account.

The official client reads kubeconfigs and makes the TLS configuration; what it does once only, or in a way that may send a request
without credentials, is done here: token files, and programs that print credentials.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from attrs import field, frozen

from kproxy_core.sources.kubernetes.credentials import Credentials, ExecCredentials, FixedCredentials, TokenFile
from kproxy_core.sources.kubernetes.errors import AccessError, CredentialsError
from kproxy_core.sources.kubernetes.official import CLIENT

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts a Pod's token and the cluster's authority."""


@frozen(kw_only=True)
class Loaded:
    """Access as read at one moment: the client's configuration, the credentials, and the files that both came from."""

    configuration: Any
    credentials: Credentials
    files: tuple[Path, ...] = ()


@frozen(kw_only=True)
class ApiAccess:
    """How to reach one API server. ``load`` reads everything anew, for when files have changed; it raises AccessError.

    ``description`` is for logs.
    """

    server: str
    description: str
    load: Callable[[], Loaded] = field(repr=False)

    @classmethod
    def from_kubeconfig(cls, path: str | Path, context: str | None = None, *, server: str = "") -> "ApiAccess":
        """Read a kubeconfig, or several joined by colons as in KUBECONFIG; of its contexts the current one unless named.

        ``server`` replaces the cluster's address, as kube-proxy's ``--master`` does. Raises AccessError.
        """

        def load() -> Loaded:
            return _load_kubeconfig(str(path), context, server)

        return cls._checked(f"kubeconfig {path}", load)

    @classmethod
    def in_cluster(cls, directory: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ) -> "ApiAccess":
        """Use the service account of the Pod this runs in. Raises AccessError outside of Pods."""

        def load() -> Loaded:
            return _load_in_cluster(directory, environ)

        return cls._checked("the Pod's service account", load)

    @classmethod
    def _checked(cls, description: str, load: Callable[[], Loaded]) -> "ApiAccess":
        first = load()
        return cls(server=first.configuration.host, description=description, load=_FirstKept(first, load))


class _FirstKept:
    """Loads, but for the first time gives what was loaded already: a credential program need not run twice at the start."""

    def __init__(self, first: Loaded, load: Callable[[], Loaded]) -> None:
        self._first: Loaded | None = first
        self._load = load

    def __call__(self) -> Loaded:
        first, self._first = self._first, None
        return first or self._load()


def _load_in_cluster(directory: Path, environ: Mapping[str, str]) -> Loaded:
    token, authority = directory / "token", directory / "ca.crt"
    configuration = CLIENT.Configuration()
    try:
        CLIENT.InClusterConfigLoader(str(token), str(authority), try_refresh_token=False, environ=environ).load_and_set(
            configuration
        )
    except (CLIENT.ConfigException, OSError) as error:
        raise AccessError(
            f"no access to the API server as a Pod ({str(error).rstrip('.')}): run in a Pod with a service account, name a "
            "kubeconfig (clientConnection.kubeconfig, --kubeconfig), or go without a cluster (--source manifests:DIR)"
        ) from error
    configuration.api_key.clear()
    return Loaded(configuration=configuration, credentials=TokenFile(token), files=(authority,))


def _load_kubeconfig(path: str, context: str | None, server: str) -> Loaded:
    paths = tuple(Path(part).expanduser() for part in path.split(os.pathsep) if part)
    present = tuple(part for part in paths if part.exists())
    if not present:
        raise AccessError(f"kubeconfig {path}: no such file")
    configuration = CLIENT.Configuration()
    try:
        config = CLIENT.KubeConfigMerger(path).config
        credentials, own = _own_credentials(config, context)
        CLIENT.KubeConfigLoader(config_dict=config, active_context=context, config_base_path=None).load_and_set(configuration)
    except yaml.YAMLError as error:
        raise AccessError(f"kubeconfig {path} is no YAML: {' '.join(str(error).split())}") from error
    except (CLIENT.ConfigException, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise AccessError(f"kubeconfig {path}: {error}") from error
    if server:
        configuration.host = server.rstrip("/")
    if isinstance(credentials, ExecCredentials):
        _use_certificate(configuration, credentials)
    if credentials is None:
        credentials = FixedCredentials(_authorization(configuration))
    files = (*present, *own, *_tls_files(configuration))
    return Loaded(configuration=configuration, credentials=credentials, files=files)


def _own_credentials(config: Any, context: str | None) -> tuple[Credentials | None, tuple[Path, ...]]:
    """Take token files and credential programs out of the client's hands; the rest of the user's entry stays.

    client-go prefers a token file to a token beside it.
    """
    chosen = config["contexts"].get_with_name(context or config["current-context"])["context"]
    name = chosen.safe_get("user")
    entry = config["users"].get_with_name(name, safe=True) if name and config.safe_get("users") else None
    if entry is None:
        return None, ()
    user = entry["user"]
    base = Path(user.path or ".").absolute().parent
    token_file = user.value.pop("tokenFile", None)
    if token_file:
        user.value.pop("token", None)
        user.value.pop("exec", None)
        return TokenFile(base / token_file), ()
    if user.value.get("exec") and not user.value.get("token"):
        cluster = config["clusters"].get_with_name(chosen["cluster"])["cluster"]
        provider = CLIENT.ExecProvider(user["exec"], str(base), cluster)
        command = str(user.value.pop("exec")["command"])
        return ExecCredentials(command, _running(provider, command)), ()
    return None, ()


def _running(provider: Any, command: str) -> Callable[[], Mapping[str, Any]]:
    def run() -> Mapping[str, Any]:
        try:
            status: Mapping[str, Any] = provider.run()
        except CLIENT.ConfigException as error:
            raise CredentialsError(f"the credential program {command} failed: {error}") from error
        return status

    return run


def _use_certificate(configuration: Any, credentials: ExecCredentials) -> None:
    """Run the program now: a missing one is an error of the configuration, and its certificate belongs to the TLS set-up."""
    try:
        files = credentials.certificate_files()
    except CredentialsError as error:
        raise AccessError(str(error)) from error
    if files is not None:
        configuration.cert_file, configuration.key_file = map(str, files)


def _authorization(configuration: Any) -> dict[str, str]:
    """Return the header that the client made of a token, a password or a cloud's own scheme."""
    key = configuration.api_key.get("BearerToken") or configuration.api_key.get("authorization")
    return {"Authorization": key} if key else {}


def _tls_files(configuration: Any) -> tuple[Path, ...]:
    names = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    return tuple(Path(name) for name in names if name)
