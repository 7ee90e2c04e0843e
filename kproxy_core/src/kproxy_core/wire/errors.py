"""The two ways an encoding can fail."""


class WireError(ValueError):
    """Base of what this package raises."""


class EncodingError(WireError):
    """A value does not fit the format: the caller's fault."""


class MalformedMessageError(WireError):
    """Bytes that do not follow the format: truncated, or lengths that contradict one another."""
