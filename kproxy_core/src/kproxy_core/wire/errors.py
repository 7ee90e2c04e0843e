"""The ways in which an encoding can fail."""


class WireError(ValueError):
    """Base of what this package raises."""


class EncodingError(WireError):
    """A value does not fit the format: the caller's fault."""


class RepeatedElementError(WireError):
    """A listing tells an element twice, and so leaves out another one."""


class MalformedMessageError(WireError):
    """Bytes that do not follow the format: truncated, or lengths that contradict one another."""
