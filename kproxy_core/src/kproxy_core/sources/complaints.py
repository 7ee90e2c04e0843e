"""Collects what is odd about one object while it is decoded."""

from collections.abc import Iterable

from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.sources.repair import Complaint, field_path


class Complaints:
    """The Diagnostics of one object, in the order they were found."""

    def __init__(self, subject: str, malformed: Iterable[Complaint] = ()) -> None:
        self.subject = subject
        self._told: list[Diagnostic] = []
        for complaint in malformed:
            self.add(field_path(complaint.path), complaint.message, complaint.remedy)

    def add(self, field: str, message: str, remedy: str = "", severity: Severity = Severity.ERROR) -> None:
        """Tell of one field."""
        self._told.append(Diagnostic(severity=severity, subject=self.subject, field=field, message=message, remedy=remedy))

    @property
    def told(self) -> tuple[Diagnostic, ...]:
        """All of them."""
        return tuple(self._told)
