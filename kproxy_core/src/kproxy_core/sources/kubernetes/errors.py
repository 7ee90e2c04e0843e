"""What can go wrong between here and the API server, by what is to be done about it."""

from kproxy_core.plugin.errors import ConfigError


class AccessError(ConfigError):
    """The operator's: no usable kubeconfig or service account; the message says what is missing and what to write."""


class CredentialsError(Exception):
    """Credentials cannot be had at present, so nothing is sent: never an anonymous request in their place. A retry may help."""


class TransportError(Exception):
    """The request or its answer was cut short: connection refused, reset, closed, not trusted, or silent for too long.

    ``silent`` tells of the last: the peer kept the connection and said nothing.
    """

    def __init__(self, message: str, *, silent: bool = False) -> None:
        super().__init__(message)
        self.silent = silent


class InterruptedRequestError(TransportError):
    """The request was ended from this side: the source stops, or goes on with new credentials."""
