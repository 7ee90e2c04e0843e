"""Reads the annotation ``kproxy.dev/weights``: how much of a Service's new connections each endpoint gets.

The value is a comma-separated list of ``ADDRESS=WEIGHT``; ``*`` stands for all other endpoints, which otherwise weigh 1. Weights
are whole numbers from 0 to 1000, relative to each other; 0 takes no new connections. Blanks do not matter::

    kproxy.dev/weights: "*=1, 10.0.0.5=3, 2001:db8::5=0"
"""

from typing import Final

from kproxy_core.model.addresses import parse_address
from kproxy_core.model.objects import WEIGHTS_ANNOTATION
from kproxy_core.sources.complaints import Complaints

HEAVIEST: Final = 1000
REMEDY: Final = 'write a list such as "*=1, 10.0.0.5=3": addresses, or * for all others, with weights from 0 to 1000'

_FIELD: Final = f"metadata.annotations[{WEIGHTS_ANNOTATION}]"


def parse_weights(text: str, complaints: Complaints) -> dict[str, int]:
    """Return the weights by canonical address or ``*``; an entry that cannot be read is left out and told."""
    weights: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (part.strip() for part in entry.rpartition("="))
        try:
            address = key if key == "*" else str(parse_address(key))
            weight = int(value) if equals and value.isascii() and value.isdigit() else -1
        except ValueError:
            weight = -1
        if not 0 <= weight <= HEAVIEST:
            complaints.add(_FIELD, f"{entry!r} is no weight; left out", REMEDY)
        elif address in weights:
            complaints.add(_FIELD, f"a second weight for {address} is left out", "give each address one weight")
        else:
            weights[address] = weight
    return weights
