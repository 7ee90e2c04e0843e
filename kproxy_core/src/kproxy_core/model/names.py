"""Names: of objects, of Service ports, of protocols."""

import enum
from typing import NamedTuple

import msgspec

from kproxy_core.model.addresses import Family


class Protocol(enum.IntEnum):
    """A transport protocol that a Service port can have; the number is IANA's."""

    TCP = 6
    UDP = 17
    SCTP = 132

    # Enum's own hash is Python code; these are part of every key.
    __hash__ = int.__hash__


class ObjectName(msgspec.Struct, frozen=True, order=True, gc=False, cache_hash=True):
    """Namespace and name of an API object; the namespace is empty for cluster-wide kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ServicePortName(msgspec.Struct, frozen=True, order=True, gc=False, cache_hash=True):
    """The key of everything downstream: one port of one Service. A struct, because its hash is asked for all the time.

    ``port`` is the port's name, empty for the single port of a Service that does not name it. Two ports of a Service may share a
    number (DNS over TCP and UDP), so the protocol belongs to the name.
    """

    namespace: str
    name: str
    port: str
    protocol: Protocol

    @property
    def service(self) -> ObjectName:
        """The Service it belongs to."""
        return ObjectName(self.namespace, self.name)

    def __str__(self) -> str:
        port = f":{self.port}" if self.port else ""
        return f"{self.namespace}/{self.name}{port}/{self.protocol.name}"


def parse_service_port_name(text: str) -> ServicePortName | None:
    """Undo ``str`` of a ServicePortName; None for anything else, such as a comment that somebody else wrote."""
    namespace, slash, rest = text.partition("/")
    service, slash_again, protocol = rest.rpartition("/")
    name, _, port = service.partition(":")
    if not (slash and slash_again and namespace and name) or protocol not in Protocol.__members__:
        return None
    return ServicePortName(namespace, name, port, Protocol[protocol])


class ServicePortKey(NamedTuple):
    """A Service port in one IP family: dual-stack Services are two of these, independent of each other."""

    family: Family
    name: ServicePortName

    def __str__(self) -> str:
        return f"{self.name} ({self.family.label})"
