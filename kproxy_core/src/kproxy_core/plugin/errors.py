"""Errors by who is at fault: the operator, the node, the kernel's answer, or the plugin."""

from kproxy_core.program.program import ContractError

__all__ = ["ApplyError", "ConfigError", "ContractError", "UnsupportedError"]


class ConfigError(Exception):
    """The operator's: the message says which setting is wrong and what to write instead."""


class UnsupportedError(Exception):
    """The node lacks something; the message names it and the remedy."""


class ApplyError(Exception):
    """The kernel could not be read or written in a way that a retry may mend; what it holds is unknown until read again."""
