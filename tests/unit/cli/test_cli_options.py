"""Options become Settings: under our names and kube-proxy's, with contradictions told."""

import json
from typing import Any

import attrs
import click
import pytest
from click.testing import CliRunner

from kproxy_core.cli import options
from kproxy_core.config.settings import DetectLocalMode, NodePortScope, Settings
from kproxy_core.model.addresses import parse_address, parse_network


@click.command()
@options.mode_option
@options.settings_options
@options.period_options
@click.pass_context
def both(context: click.Context, /, **given: Any) -> None:
    """Hand over the settings."""
    context.obj.append(options.settings_from(context, options.with_aliases(context, given)))


def settings(*arguments: str) -> Settings:
    """The Settings of a command line."""
    made: list[Settings] = []
    result = CliRunner().invoke(both, arguments, obj=made, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return made[0]


def complaint(*arguments: str) -> str:
    """What is said about a wrong command line."""
    result = CliRunner().invoke(both, arguments, obj=[], catch_exceptions=False)
    assert result.exit_code == 2, result.output
    return result.output


def test_without_options_everything_is_as_settings_has_it_but_for_the_nodes_name() -> None:
    made = settings()
    assert made.node_name
    assert made.mode_options == {"iptables.localhostNodePorts": "true"}
    assert attrs.evolve(made, node_name="", mode_options={}) == Settings()


def test_every_option_has_its_setting() -> None:
    made = settings(
        "--mode=nftables",
        "--node-name=Node-A",
        "--bind-address=10.0.0.9",
        "--cluster-cidr=10.244.0.0/16,fd00::/56",
        "--detect-local-mode=bridgeinterface",
        "--pod-bridge-interface=cbr0",
        "--pod-interface-name-prefix=veth",
        "--nodeport-addresses=all",
        "--masquerade-all",
        "--masquerade-bit=7",
        "--iptables-localhost-nodeports=false",
        "--no-external-ips",
        "--protected-ports=2222",
        "--min-sync-period=500ms",
        "--sync-period=1m",
    )
    assert made == Settings(
        mode="nftables",
        node_name="node-a",
        bind_address=parse_address("10.0.0.9"),
        cluster_cidrs=(parse_network("10.244.0.0/16"), parse_network("fd00::/56")),
        detect_local_mode=DetectLocalMode.BRIDGE_INTERFACE,
        bridge_interface="cbr0",
        interface_name_prefix="veth",
        node_port_addresses=NodePortScope.ALL,
        masquerade_bit=7,
        masquerade_all=True,
        external_ips_allowed=False,
        min_sync_period=0.5,
        sync_period=60.0,
        protected_ports=frozenset({2222}),
        mode_options={"iptables.localhostNodePorts": "false"},
    )
    assert {a.name for a in attrs.fields(Settings)} == {
        a.name for a in attrs.fields(Settings) if getattr(made, a.name) != getattr(Settings(), a.name)
    }


def test_kube_proxys_names_work_as_well() -> None:
    made = settings(
        "--proxy-mode=nftables",
        "--hostname-override=Node-A",
        "--iptables-masquerade-bit=7",
        "--iptables-min-sync-period=2s",
        "--iptables-sync-period=3s",
    )
    assert (made.mode, made.node_name, made.masquerade_bit) == ("nftables", "node-a", 7)
    assert (made.min_sync_period, made.sync_period) == (2.0, 3.0)


def test_the_choice_of_detection_is_that_of_the_settings() -> None:
    assert tuple(mode.value for mode in DetectLocalMode) == options.DETECT_LOCAL_MODES
    assert Settings().detect_local_mode.value == options.DETECT_LOCAL_MODES[0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--sync-period=soon"], "'soon' is not a duration such as 500ms, 30s or 1h30m"),
        (["--sync-period=0"], "--sync-period must be more than 0"),
        (["--min-sync-period=1m"], "--min-sync-period (60 s) must not be longer than --sync-period (30 s)"),
        (["--masquerade-bit=32"], "32 is not in the range 0<=x<=31"),
        (["--cluster-cidr=10.0.0.0/33"], "'10.0.0.0/33' is not an address range such as 10.0.0.0/8 or 2001:db8::/32"),
        (["--bind-address=me"], "'me' is not an IP address"),
        (["--nodeport-addresses=primary,all"], "'primary' has to stand alone, without all"),
        (["--protected-ports=ssh"], "'ssh' is not a port from 1 to 65535"),
        (["--detect-local-mode=BridgeInterface"], "--detect-local-mode BridgeInterface needs --pod-bridge-interface as well"),
        (
            ["--detect-local-mode=InterfaceNamePrefix"],
            "--detect-local-mode InterfaceNamePrefix needs --pod-interface-name-prefix as well",
        ),
    ],
)
def test_mistakes_name_the_option_and_say_what_to_write(arguments: list[str], told: str) -> None:
    said = complaint(*arguments)
    assert told in said
    assert arguments[0].partition("=")[0] in said


@pytest.mark.parametrize(
    ("value", "path"), [("manifests:a/b", "a/b"), ("manifests:-", "-"), ("-", "-"), ("manifests:x:y", "x:y")]
)
def test_sources(value: str, path: str) -> None:
    @click.command()
    @options.source_option
    def command(manifests: str) -> None:
        click.echo(json.dumps(manifests))

    result = CliRunner().invoke(command, ["--source", value])
    assert json.loads(result.output) == path


@pytest.mark.parametrize("value", ["", "manifests:", "manifest:x", "/tmp", "kubernetes"])
def test_what_is_no_source_is_told(value: str) -> None:
    @click.command()
    @options.source_option
    def command(manifests: str) -> None:
        raise AssertionError(manifests)

    result = CliRunner().invoke(command, ["--source", value])
    assert result.exit_code == 2
    assert "write manifests:PATH, or manifests:- for standard input" in result.output
    assert ("did you mean manifests:/tmp?" in result.output) == (value == "/tmp")
