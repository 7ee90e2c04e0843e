"""What the kernel says against a request about sets, in ipset's own words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kproxy_core.kernel.errors import NetlinkError, netlink_error
from kproxy_core.wire.ipset_constants import ErrorCode, in_words


class IpSetError(NetlinkError):
    """The kernel refused a request about sets: `code` says why where it is one of ipset's own codes, `error` always."""

    def __init__(self, what: str, error: int, words: str) -> None:
        super().__init__(what, error)
        self.args = (f"{what}: {words} ({ErrorCode(error).name})",)
        self.code = ErrorCode(error)


class SetBusyError(IpSetError):
    """A rule uses the set: it can be neither destroyed nor renamed.

    nf_tables (iptables-nft) gives up sets some milliseconds after a rule is gone.
    """


class UnsupportedSetTypeError(IpSetError):
    """The kernel has no sets of this type, or only of an older revision."""


_KINDS: Final = {
    ErrorCode.BUSY: SetBusyError,
    ErrorCode.REFERENCED: SetBusyError,
    ErrorCode.FIND_TYPE: UnsupportedSetTypeError,
}


def ipset_error(what: str, error: int, text: str | None = None) -> NetlinkError:
    """The most specific error for an errno or one of ipset's codes."""
    words = in_words(error)
    if words is None:
        return netlink_error(what, error, text)
    code = ErrorCode(error)
    return _KINDS.get(code, IpSetError)(what, code, words)


@contextmanager
def told_in_words() -> Iterator[None]:
    """Raise as ipset_error() what is refused inside."""
    try:
        yield
    except NetlinkError as error:
        if in_words(error.error) is None:
            raise
        raise ipset_error(error.what, error.error) from None
