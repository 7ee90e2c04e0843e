"""Diagnostics: what is odd about an object, told to people and never raised."""

import enum

from attrs import frozen


class Severity(enum.IntEnum):
    """How bad: a NOTE explains, a WARNING is served but risky, at an ERROR something is left out."""

    NOTE = 1
    WARNING = 2
    ERROR = 3


@frozen(kw_only=True, order=True, cache_hash=True)
class Diagnostic:
    """One sentence about one field of one object.

    ``subject`` is ``Kind namespace/name``; ``field`` is a path such as ``spec.ports[0].port`` or empty; ``remedy`` says what to
    write instead, or is empty where there is nothing to do. ``place`` is the file and line where the object
    is written, such as ``web.yaml:12``, or empty for what is in no file.
    """

    severity: Severity
    subject: str
    field: str = ""
    message: str
    remedy: str = ""
    place: str = ""

    def __str__(self) -> str:
        where = ": ".join(part for part in (self.place, self.subject, self.field) if part)
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{where}: {self.message}{remedy}"
