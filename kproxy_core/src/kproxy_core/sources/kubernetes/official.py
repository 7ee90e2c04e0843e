"""The parts of the official client that are used, imported without the rest of it.

To import any module of the client means to run its packages first, and these import everything: the generated models up to
release 36, and in every release pydantic, two OAuth libraries and a websocket client. That is 14 MiB and a third of a second for
what a proxy never calls. So the packages are entered here without being run. A token of OpenID Connect takes some of the rest to
be refreshed, and gets it when that happens.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, Final

from attrs import frozen

_CLIENT: Final = "kubernetes"
_PACKAGES: Final = (_CLIENT, "kubernetes.client", "kubernetes.config", "kubernetes.utils")
_OAUTH: Final = ("oauthlib.oauth2", "requests_oauthlib")


@frozen(kw_only=True)
class OfficialClient:
    """The client's classes, under their own names."""

    Configuration: Any
    ConfigException: type[Exception]
    ExecProvider: Any
    InClusterConfigLoader: Any
    KubeConfigLoader: Any
    KubeConfigMerger: Any
    RESTClientObject: Any


def import_client() -> OfficialClient:
    """Import the parts; who imports the client later on gets it whole, as if this had not been."""
    try:
        with _packages_entered():
            return _parts()
    except (ImportError, AttributeError):
        # A release that is put together in another way: then all of it.
        return _parts()


def _parts() -> OfficialClient:
    kube_config = import_module("kubernetes.config.kube_config")
    return OfficialClient(
        Configuration=import_module("kubernetes.client.configuration").Configuration,
        ConfigException=import_module("kubernetes.config.config_exception").ConfigException,
        ExecProvider=import_module("kubernetes.config.exec_provider").ExecProvider,
        InClusterConfigLoader=import_module("kubernetes.config.incluster_config").InClusterConfigLoader,
        KubeConfigLoader=kube_config.KubeConfigLoader,
        KubeConfigMerger=kube_config.KubeConfigMerger,
        RESTClientObject=import_module("kubernetes.client.rest").RESTClientObject,
    )


@contextmanager
def _packages_entered() -> Iterator[None]:
    """Let modules of the client be imported without running its packages; nothing of it stays importable afterwards."""
    if _CLIENT in sys.modules:
        yield  # whoever imported it has paid for it
        return
    stand_ins = [name for name in _OAUTH if name not in sys.modules]
    try:
        for name in _PACKAGES:
            spec = find_spec(name)
            if spec is None:
                raise ImportError(f"{name} is no package any more")
            sys.modules[name] = module_from_spec(spec)
        import_module("oauthlib")  # the package itself, which is small, so that the stand-in finds its place in it
        sys.modules.update({name: ModuleType(name) for name in stand_ins})
        _provide("requests_oauthlib", "OAuth2Session")
        _provide("kubernetes.client", "ApiClient")
        sys.modules["kubernetes.client"].Configuration = import_module("kubernetes.client.configuration").Configuration  # type: ignore[attr-defined]
        yield
    finally:
        for name in [name for name in sys.modules if name in stand_ins or name.partition(".")[0] == _CLIENT]:
            del sys.modules[name]


def _provide(module: str, name: str) -> None:
    """Put a class that is imported when it is called into a module that is not run now."""
    if not hasattr(sys.modules[module], name):
        setattr(sys.modules[module], name, _imported_when_called(module, name))


def _imported_when_called(module: str, name: str) -> Callable[..., Any]:
    def make(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(module), name)(*arguments, **named)

    return make


CLIENT: Final = import_client()
