"""What is said of a mode that is not installed, whichever others are."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner

from kproxy_core.cli import installed
from kproxy_core.cli.main import main
from kproxy_core.plugin.errors import ConfigError


def only(monkeypatch: pytest.MonkeyPatch, *modes: str) -> None:
    """Let only these modes be installed."""
    points = {mode: EntryPoint(mode, f"kproxy_{mode}.plugin", "kproxy.backends") for mode in modes}
    monkeypatch.setattr(installed, "installed_modes", lambda: points)


@pytest.mark.parametrize(
    ("mode", "hint"),
    [
        ("iptables", "try: pip install kproxy-iptables"),
        ("ipvs", "try: pip install kproxy-ipvs"),
        ("userspace", "try: pip install kproxy-userspace"),
        ("ebpf", "try: pip install kproxy-ebpf"),
        ("kernelspace", "try: pip install kproxy-ebpf"),
        ("nfttables", "did you mean 'nftables'?"),
        ("ipvss", "did you mean 'ipvs' (pip install kproxy-ipvs)?"),
        ("xyz", "modes that kproxy knows of: ebpf, iptables, ipvs, kernelspace, nftables, userspace"),
    ],
)
def test_a_mode_that_is_not_installed_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch, mode: str, hint: str) -> None:
    only(monkeypatch, "nftables")
    with pytest.raises(ConfigError) as raised:
        installed.check_name(mode)
    assert str(raised.value) == f"mode '{mode}' is not installed (installed: nftables); {hint}"


@pytest.mark.parametrize(("mode", "said"), [("nftables", ""), ("ipvs", "mode 'ipvs' is not installed: ")])
def test_where_no_mode_is_installed_the_first_to_try_is_named(monkeypatch: pytest.MonkeyPatch, mode: str, said: str) -> None:
    only(monkeypatch)
    with pytest.raises(ConfigError) as raised:
        installed.check_name(mode)
    assert str(raised.value) == f"{said}no mode is installed; the first to try is: pip install kproxy-nftables"


def test_an_installed_mode_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "nftables", "strange")
    installed.check_name("strange")


@pytest.mark.parametrize(
    ("modes", "status", "said"),
    [
        (("iptables", "nftables"), 0, "good, mode iptables"),
        (("nftables",), 1, "mode: unset, which means iptables, as for kube-proxy; mode 'iptables' is not installed (installed: "),
    ],
)
def test_no_mode_in_a_file_means_iptables_as_for_kube_proxy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, modes: tuple[str, ...], status: int, said: str
) -> None:
    only(monkeypatch, *modes)
    path = tmp_path / "config.yaml"
    path.write_text('apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ""\n')
    done = CliRunner().invoke(main, ["check-config", str(path)])
    assert done.exit_code == status
    assert said in done.output
