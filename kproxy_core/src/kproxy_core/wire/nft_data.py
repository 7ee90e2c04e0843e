"""Values, verdicts and userdata: the pieces from which nf_tables objects are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from kproxy_core.wire import netlink
from kproxy_core.wire.errors import EncodingError, MalformedMessageError
from kproxy_core.wire.nft_constants import USERDATA_LIMIT, VerdictCode

_VALUE: Final = 1
_VERDICT: Final = 2
_CODE: Final = 1
_CHAIN: Final = 2
COMMENT_LIMIT: Final = USERDATA_LIMIT - 2
"""Longest comment, in bytes, its zero byte included: what fits into userdata.

nft accepts no more than 128 in what it reads, but lists longer ones. The names of a Service, its namespace and its port, of 63
characters each, need them.
"""


@frozen
class Verdict:
    """What happens to a packet next; `chain` for JUMP and GOTO."""

    code: int
    chain: str | None = None

    def __str__(self) -> str:
        """As nft prints it."""
        try:
            name = VerdictCode(self.code).name.lower()
        except ValueError:
            name = str(self.code)
        return f"{name} {self.chain}" if self.chain else name


ACCEPT: Final = Verdict(VerdictCode.ACCEPT)
DROP: Final = Verdict(VerdictCode.DROP)
CONTINUE: Final = Verdict(VerdictCode.CONTINUE)
RETURN: Final = Verdict(VerdictCode.RETURN)


def jump(chain: str) -> Verdict:
    """Go to a chain and come back."""
    return Verdict(VerdictCode.JUMP, chain)


def goto(chain: str) -> Verdict:
    """Go to a chain and do not come back."""
    return Verdict(VerdictCode.GOTO, chain)


def encode_data(data: bytes | Verdict) -> bytes:
    """The inside of a data attribute."""
    if isinstance(data, bytes):
        return netlink.attribute(_VALUE, data)
    parts = netlink.u32be(_CODE, data.code & 0xFFFFFFFF)
    if data.chain is not None:
        parts += netlink.string(_CHAIN, data.chain)
    return netlink.nested(_VERDICT, parts)


def decode_data(value: bytes) -> bytes | Verdict:
    """Read the inside of a data attribute."""
    found = netlink.attributes(value)
    if _VALUE in found:
        return found[_VALUE]
    if _VERDICT not in found:
        raise MalformedMessageError("a data attribute with neither value nor verdict")
    inside = netlink.attributes(found[_VERDICT])
    code = netlink.decode_number(inside.get(_CODE, b""), 4)
    chain = netlink.decode_string(inside[_CHAIN]) if _CHAIN in inside else None
    return Verdict(code - (1 << 32) if code >> 31 else code, chain)


def encode_userdata(fields: Mapping[int, bytes]) -> bytes:
    """Userdata in nft's form: a type byte, a length byte, the value.

    Raises EncodingError beyond 255 bytes for one value or 256 for all.
    """
    raw = b""
    for kind, value in fields.items():
        if len(value) > 255:
            raise EncodingError(f"userdata of {len(value)} bytes, at most 255 fit")
        raw += bytes((kind, len(value))) + value
    if len(raw) > USERDATA_LIMIT:
        raise EncodingError(f"userdata of {len(raw)} bytes, at most {USERDATA_LIMIT} fit")
    return raw


def decode_userdata(raw: bytes) -> dict[int, bytes]:
    """Read userdata leniently: others write what they like there, so reading stops where it makes no sense."""
    fields: dict[int, bytes] = {}
    start = 0
    while start + 2 <= len(raw):
        kind, length = raw[start], raw[start + 1]
        if start + 2 + length > len(raw):
            break
        fields[kind] = raw[start + 2 : start + 2 + length]
        start += 2 + length
    return fields


def encode_comment(text: str, kind: int = 0) -> bytes:
    """Userdata that nft prints as a comment (kind 0 for tables, chains, rules and elements, 7 for sets).

    Raises EncodingError for more than 253 bytes, for a zero byte, and for a double quote or a line break, which would
    make nft's own listing unreadable to nft.
    """
    raw = text.encode()
    if len(raw) >= COMMENT_LIMIT or '"' in text or "\n" in text or "\0" in text:
        raise EncodingError(f"not fit for a comment (at most {COMMENT_LIMIT - 1} bytes, no quote, no line break): {text!r}")
    return b"%c%c%b\0" % (kind, len(raw) + 1, raw)


def decode_comment(raw: bytes, kind: int = 0) -> str | None:
    """The comment in userdata, if there is one."""
    value = decode_userdata(raw).get(kind)
    return None if value is None else netlink.decode_string(value)
