"""Changes: what a source tells about the objects it watches."""

from attrs import frozen

from kproxy_core.model.diagnostics import Diagnostic
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import EndpointSlice, Node, Service, ServiceCIDR
from kproxy_core.model.snapshot import Kind

WatchedObject = Service | EndpointSlice | Node | ServiceCIDR


@frozen(kw_only=True)
class Replaced:
    """The complete list of one kind, as after a list request: what is not in it is gone, and the kind is in sync.

    ``diagnostics`` are the decoder's, for the objects of this list.
    """

    kind: Kind
    objects: tuple[WatchedObject, ...]
    diagnostics: tuple[Diagnostic, ...] = ()


@frozen(kw_only=True)
class Upserted:
    """One object was added or has changed. ``diagnostics`` replace all earlier ones of the decoder for this object."""

    object: WatchedObject
    diagnostics: tuple[Diagnostic, ...] = ()


@frozen(kw_only=True)
class Deleted:
    """One object is gone, or no longer one that the proxy should see; ``diagnostics`` tell why in the latter case."""

    kind: Kind
    name: ObjectName
    diagnostics: tuple[Diagnostic, ...] = ()


Change = Replaced | Upserted | Deleted
