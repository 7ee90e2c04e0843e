"""The sets (ipset) of one network namespace: made, filled in bulk, listed."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from kproxy_core.kernel.closing import Closing
from kproxy_core.kernel.errors import NetlinkError, netlink_error
from kproxy_core.kernel.ipset_changes import ChangeResult, ElementChange, RefusedElement
from kproxy_core.kernel.ipset_errors import IpSetError, UnsupportedSetTypeError, told_in_words
from kproxy_core.kernel.namespaces import Namespace
from kproxy_core.kernel.netlink_socket import NetlinkSocket
from kproxy_core.wire import ipset as wire
from kproxy_core.wire.ipset import IpSet, ListedSet, Requests, Versions, message_type
from kproxy_core.wire.ipset_constants import Command, ErrorCode, ListFlag, in_words
from kproxy_core.wire.ipset_elements import Element, decode_elements, decode_keys, encode_elements, encode_keys
from kproxy_core.wire.ipset_keys import SetType
from kproxy_core.wire.netlink import Message, MessageFlag, Protocol
from kproxy_core.wire.nfnetlink import Family


class IpSetSocket(Closing):
    """The sets of one network namespace, for one thread at a time.

    Raises NotFoundError for a set that is not there, IpSetError and its kinds, and NetlinkError.
    """

    def __init__(self, *, namespace: Namespace | None = None) -> None:
        """Open it and agree on a version of the protocol; NetlinkError where the kernel has no ipset or allows none."""
        self._netlink = NetlinkSocket(Protocol.NETFILTER, namespace=namespace)
        try:
            self.protocol = self._agree()
        except BaseException:
            self._netlink.close()
            raise
        self._requests = Requests(self.protocol)
        self._revisions: dict[tuple[SetType, Family], int] = {}

    def _agree(self) -> int:
        what = "ask for the version of ipset"
        kernel = wire.decode_protocol(self._request(Command.PROTOCOL, wire.protocol_request(), what)[0].payload)
        chosen = wire.choose_protocol(kernel)
        if chosen is None:
            raise netlink_error(f"{what}: the kernel speaks {kernel.oldest} to {kernel.newest}", errno.EPROTONOSUPPORT)
        return chosen

    def close(self) -> None:
        """Close it; the sets stay."""
        self._netlink.close()

    # -- sets

    def revisions(self, kind: SetType, family: Family) -> Versions:
        """The revisions of a type that the kernel has; it loads the module that is needed.

        Raises UnsupportedSetTypeError.
        """
        (answer,) = self._request(Command.TYPE, self._requests.type(kind, family), f"look for the set type {kind.value}")
        return wire.decode_type(answer.payload)

    def create(self, wanted: IpSet, *, exclusive: bool = True) -> None:
        """Make a set. With `exclusive` any set of the name is in the way (EEXIST); without, only one that is defined otherwise.

        Raises UnsupportedSetTypeError.
        """
        what = f"create the set {wanted.name}"
        payload = self._requests.create(wanted, self._revision(wanted, what))
        self._request(Command.CREATE, payload, what, MessageFlag.CREATE | wire.change_flags(exclusive=exclusive))

    def _revision(self, wanted: IpSet, what: str) -> int:
        key = wanted.type, wanted.family
        if key not in self._revisions:
            kernel = self.revisions(*key)
            chosen = wire.choose_revision(wanted.type, kernel)
            if chosen is None:
                words = (
                    f"revision {wanted.type.revision} of {wanted.type.value} is needed, the kernel has at most {kernel.newest}"
                )
                raise UnsupportedSetTypeError(what, ErrorCode.FIND_TYPE, words)
            self._revisions[key] = chosen
        return self._revisions[key]

    def destroy(self, name: str) -> None:
        """Destroy a set with its elements.

        Raises SetBusyError while a rule uses it.
        """
        # Without this flag newer kernels take a missing set for a destroyed one, older ones do not.
        flags = wire.change_flags(exclusive=True)
        self._request(Command.DESTROY, self._requests.named(name), f"destroy the set {name}", flags)

    def flush(self, name: str) -> None:
        """Remove all elements of a set."""
        self._request(Command.FLUSH, self._requests.named(name), f"flush the set {name}")

    def rename(self, name: str, new: str) -> None:
        """Rename a set.

        Raises SetBusyError while a rule uses it.
        """
        self._request(Command.RENAME, self._requests.pair(name, new), f"rename the set {name} to {new}")

    def swap(self, first: str, second: str) -> None:
        """Exchange the contents of two sets of one type at once: rules that use one now see what was in the other."""
        self._request(Command.SWAP, self._requests.pair(first, second), f"swap the sets {first} and {second}")

    def sets(self) -> tuple[ListedSet, ...]:
        """All sets without their elements, other people's too, in no particular order."""
        listed = self._list(None, ListFlag.HEADERS, "list sets")
        return tuple(ListedSet.decode(message.payload) for message in listed)

    def find(self, name: str) -> ListedSet | None:
        """One set without its elements; None when it is not there."""
        try:
            listed = self._list(name, ListFlag.HEADERS, f"look for the set {name}")
        except NetlinkError as error:
            if error.error != errno.ENOENT:
                raise
            return None
        return ListedSet.decode(listed[0].payload)

    # -- elements

    def elements(self, target: IpSet) -> list[Element]:
        """The elements of a set with all they have, in no particular order.

        One that is added or deleted meanwhile may be there or not; those that stay are there.
        """
        form = target.form
        return [element for message in self._contents(target) for element in decode_elements(form, message.payload)]

    def keys(self, target: IpSet) -> list[bytes]:
        """As elements(), but only the packed keys: several times as fast."""
        form = target.form
        return [key for message in self._contents(target) for key in decode_keys(form, message.payload)]

    def _contents(self, target: IpSet) -> list[Message]:
        return self._list(target.name, 0, f"list the set {target.name}")

    def has(self, target: IpSet, key: bytes) -> bool:
        """Whether a key is in a set; in a set of networks an address is if one of them covers it."""
        encoded = encode_keys(target.form, [key])[0]
        try:
            self._request(Command.TEST, self._requests.test(target.name, encoded), f"test the set {target.name}")
        except IpSetError as error:
            if error.code != ErrorCode.EXIST:
                raise
            return False
        return True

    def add(self, target: IpSet, elements: Sequence[Element | bytes], *, exclusive: bool = False) -> ChangeResult:
        """Add elements, given as such or as packed keys.

        One that is there already gets the new timeout, comment, counts and mark; with `exclusive` it is refused. Others
        than the refused ones are added. Raises OutcomeUnknownError when the kernel's answer is lost.
        """
        return self._change(Command.ADD, target, elements, exclusive)

    def delete(self, target: IpSet, elements: Sequence[Element | bytes], *, exclusive: bool = False) -> ChangeResult:
        """Delete elements, given as such (only their keys count) or as packed keys.

        With `exclusive` one that is not there is refused.

        Raises OutcomeUnknownError when the kernel's answer is lost.
        """
        keys = [element.key if isinstance(element, Element) else element for element in elements]
        return self._change(Command.DELETE, target, keys, exclusive)

    def _change(self, command: Command, target: IpSet, elements: Sequence[Element | bytes], exclusive: bool) -> ChangeResult:
        change = ElementChange(
            socket=self._netlink,
            kind=message_type(command),
            flags=wire.change_flags(exclusive=exclusive),
            head=self._requests.named(target.name, target.family),
            what=_doing(command, target),
        )
        errors = change.make(_encode(target, elements))
        refused = tuple(_refusal(target, command, index, elements[index], error) for index, error in sorted(errors.items()))
        return ChangeResult(done=len(elements) - len(refused), refused=refused)

    # -- messages

    def _list(self, name: str | None, flags: int, what: str) -> list[Message]:
        with told_in_words():
            return self._netlink.dump(message_type(Command.LIST), self._requests.listing(name, flags), what)

    def _request(self, command: Command, payload: bytes, what: str, flags: int = 0) -> list[Message]:
        with told_in_words():
            return self._netlink.request(message_type(command), payload, what, flags)


def _encode(target: IpSet, elements: Sequence[Element | bytes]) -> list[bytes]:
    keys = [element for element in elements if isinstance(element, bytes)]
    if len(keys) == len(elements):
        return encode_keys(target.form, keys)
    return encode_elements(
        target.form, (element if isinstance(element, Element) else Element(key=element) for element in elements)
    )


def _refusal(target: IpSet, command: Command, index: int, element: Element | bytes, error: int) -> RefusedElement:
    key = element.key if isinstance(element, Element) else element
    reason = in_words(error, bitmap=target.type.is_bitmap) or os.strerror(error)
    if error == ErrorCode.EXIST:
        reason = "it is there already" if command == Command.ADD else "it is not there"
    text = f"{_doing(command, target)}: {target.form.text(key)}: {reason}"
    return RefusedElement(index=index, key=key, error=error, reason=text)


def _doing(command: Command, target: IpSet) -> str:
    return f"{'add to' if command == Command.ADD else 'delete from'} the set {target.name}"
