"""``python -m kproxy_core.testing.fake_api [MANIFEST ...]``: serve manifests as an API server would, to try a proxy against."""

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from kproxy_core.testing.fake_api import ApiError, Cluster, FakeApi, Object, User, write_kubeconfig


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m kproxy_core.testing.fake_api", description=__doc__)
    parser.add_argument(
        "manifests", nargs="*", type=Path, metavar="MANIFEST", help="files of objects to begin with, YAML or JSON"
    )
    parser.add_argument("--address", default="127.0.0.1", help="where to listen (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="TCP port (default: a free one)")
    parser.add_argument("--kubeconfig", type=Path, default=Path("fake-kubeconfig"), help="file to write (default: %(default)s)")
    options = parser.parse_args(arguments)
    with FakeApi(address=options.address, port=options.port) as api:
        try:
            api.apply_all(obj for path in options.manifests for obj in _objects(path))
        except (OSError, yaml.YAMLError, ApiError, LookupError, TypeError, AttributeError) as error:
            sys.stderr.write(f"cannot serve these manifests: {error}\n")
            return 1
        cluster = Cluster(server=api.url, authority=api.server_authority.pem)
        write_kubeconfig(options.kubeconfig, cluster, User(token="secret"))
        sys.stdout.write(f"serving {api.url}; kubeconfig: {options.kubeconfig}\n")
        sys.stdout.flush()
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0


def _objects(path: Path) -> Iterator[Object]:
    for document in yaml.safe_load_all(path.read_text()):
        if document and document.get("kind") == "List":
            yield from document["items"]
        elif document:
            yield document


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    sys.exit(main())
