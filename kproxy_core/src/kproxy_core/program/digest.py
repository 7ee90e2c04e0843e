"""Texts that a kernel, or a program, gives back in words of its own: known again by a digest that is kept beside them."""

import hashlib

from attrs import Factory, field, frozen


def digest(text: str) -> str:
    """A short name (16 hexadecimal digits) for a text of any length."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@frozen
class Digested:
    """A text and its digest, which alone is compared: what is read back is ``Digested("", what was kept)``."""

    text: str = field(eq=False)
    digest: str = Factory(lambda self: digest(self.text), takes_self=True)
