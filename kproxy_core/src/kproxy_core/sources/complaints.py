"""Collects what is odd about one object while it is decoded."""

from collections.abc import Iterable

from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.sources.repair import Complaint, field_path


class Complaints:
    """The Diagnostics of one object, in the order they were found. Most objects have none: their subject is never made."""

    def __init__(self, kind: str, name: object, malformed: Iterable[Complaint] = ()) -> None:
        self._kind, self._name = kind, name
        self._told: list[Diagnostic] = []
        for complaint in malformed:
            self.add(field_path(complaint.path), complaint.message, complaint.remedy)

    def add(self, field: str, message: str, remedy: str = "", severity: Severity = Severity.ERROR) -> None:
        """Tell of one field."""
        subject = f"{self._kind} {self._name}"
        self._told.append(Diagnostic(severity=severity, subject=subject, field=field, message=message, remedy=remedy))

    @property
    def told(self) -> tuple[Diagnostic, ...]:
        """All of them."""
        return tuple(self._told)
