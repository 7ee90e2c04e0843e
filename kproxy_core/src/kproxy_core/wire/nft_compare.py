"""Whether a rule in the kernel is the rule we want: comparison by meaning, not by bytes.

The kernel lists a rule with its own register numbers, with flags and defaults that were not sent, and with counts.
"""

from __future__ import annotations

from kproxy_core.wire import netlink
from kproxy_core.wire.errors import MalformedMessageError
from kproxy_core.wire.nft_expressions import AnyExpression, decode_expressions
from kproxy_core.wire.nft_layout import UnknownExpression


def same_expressions(wanted: bytes, dumped: bytes) -> bool:
    """Whether two lists of expressions (the inside of a rule's attribute) do the same.

    Expressions that this package knows are compared as typed values, counts left out. Of others every attribute wanted
    must be there with the same value, while the kernel may have added more. Attributes that a newer kernel adds to a
    known expression are passed over. Bytes that are no list of expressions are the same as nothing.
    """
    try:
        ours, theirs = decode_expressions(wanted), decode_expressions(dumped)
    except MalformedMessageError:
        return False
    return len(ours) == len(theirs) and all(map(_same, ours, theirs))


def _same(wanted: AnyExpression, dumped: AnyExpression) -> bool:
    if isinstance(wanted, UnknownExpression) and isinstance(dumped, UnknownExpression):
        return wanted.name == dumped.name and _same_attributes(wanted.data, dumped.data)
    return wanted == dumped


def _same_attributes(wanted: bytes, dumped: bytes) -> bool:
    try:
        ours = dict(netlink.iter_attributes(wanted, mask=netlink.TYPE_MASK | netlink.NESTED))
        theirs = netlink.attributes(dumped)
    except MalformedMessageError:
        return False
    for kind, value in ours.items():
        other = theirs.get(kind & netlink.TYPE_MASK)
        if other is None:
            return False
        if other != value and not (kind & netlink.NESTED and _same_attributes(value, other)):
            return False
    return True
