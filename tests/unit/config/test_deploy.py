"""What deploy/ holds fits what kproxy does: the rights cover the watches, and the configuration is good."""

from pathlib import Path
from typing import Any

import yaml

from kproxy_core.config.load import load
from kproxy_core.sources.kubernetes.resources import ENDPOINT_SLICES, SERVICE_CIDRS, SERVICES, own_node

DEPLOY = Path(__file__).parents[3] / "deploy"
MANIFEST: dict[str, Any] = {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "daemonset.yaml").read_text())}


def group_and_resource(path: str) -> tuple[str, str]:
    parts = path.strip("/").split("/")
    return ("" if parts[0] == "api" else parts[1]), parts[-1]


def test_the_rights_are_those_that_the_watches_need() -> None:
    rules = MANIFEST["ClusterRole"]["rules"]
    granted = {(group, name) for rule in rules for group in rule["apiGroups"] for name in rule["resources"]}
    watched = {group_and_resource(each.path) for each in (SERVICES, ENDPOINT_SLICES, SERVICE_CIDRS, own_node("node"))}
    assert granted == watched
    assert all(rule["verbs"] == ["list", "watch"] for rule in rules)
    (subject,) = MANIFEST["ClusterRoleBinding"]["subjects"]
    account = MANIFEST["ServiceAccount"]["metadata"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])


def test_the_configuration_is_good() -> None:
    loaded = load(MANIFEST["ConfigMap"]["data"]["config.yaml"])
    assert loaded.problems == ()
    assert loaded.configuration.mode == "nftables"


def test_the_daemon_is_run_as_it_can_be() -> None:
    from click.testing import CliRunner

    from kproxy_core.cli.run import command

    (container,) = MANIFEST["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    options = {argument.partition("=")[0] for argument in container["command"] if argument.startswith("--")}
    known = {option for parameter in command.params for option in parameter.opts}
    assert options <= known
    assert container["command"][:2] == ["kproxy", "run"]
    assert CliRunner().invoke(command, ["--help"]).exit_code == 0
