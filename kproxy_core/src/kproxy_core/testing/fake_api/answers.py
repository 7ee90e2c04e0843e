"""What the fake API server says when it refuses: Status objects in the words of kube-apiserver 1.36."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kproxy_core.testing.fake_api.resources import Resource

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class ApiError(Exception):
    """A refusal: HTTP status, Status object, and Retry-After in seconds where one is sent."""

    def __init__(self, code: int, message: str, *, reason: str = "", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason or REASONS.get(code, "Unknown"),
            **({"details": dict(details)} if details else {}),
            "code": code,
        }

    @property
    def retry_after(self) -> int | None:
        """Seconds, as the Status object's details have it."""
        seconds = self.status.get("details", {}).get("retryAfterSeconds")
        return seconds if isinstance(seconds, int) else None

    @property
    def body(self) -> bytes:
        """The Status object as it is sent."""
        return msgspec.json.encode(self.status) + b"\n"


def _about(resource: Resource, name: str = "") -> dict[str, Any]:
    named = {"name": name} if name else {}
    group = {"group": resource.group} if resource.group else {}
    return {**named, **group, "kind": resource.plural}


def unauthorized() -> ApiError:
    """The credentials are not known."""
    return ApiError(401, "Unauthorized")


def forbidden(user: str, verb: str, resource: Resource, namespace: str = "", name: str = "") -> ApiError:
    """The user is known and may not do this."""
    subject = f'{resource.qualified} "{name}"' if name else resource.qualified
    scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    message = (
        f'{subject} is forbidden: User "{user}" cannot {verb} resource "{resource.plural}" '
        f'in API group "{resource.group}" {scope}'
    )
    return ApiError(403, message, details=_about(resource, name))


def no_such_path() -> ApiError:
    """The path names nothing that is served."""
    return ApiError(404, "the server could not find the requested resource", details={})


def not_found(resource: Resource, name: str) -> ApiError:
    """There is no object of this name."""
    return ApiError(404, f'{resource.qualified} "{name}" not found', details=_about(resource, name))


def already_exists(resource: Resource, name: str) -> ApiError:
    """There is an object of this name."""
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, message, reason="AlreadyExists", details=_about(resource, name))


def conflict(resource: Resource, name: str) -> ApiError:
    """The writer had read an older version."""
    message = (
        f'Operation cannot be fulfilled on {resource.qualified} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    return ApiError(409, message, details=_about(resource, name))


def bad_request(message: str) -> ApiError:
    """The request cannot be understood."""
    return ApiError(400, message)


def invalid(kind: str, name: str, causes: Sequence[tuple[str, str, str]], group: str = "") -> ApiError:
    """The request is understood and not allowed; each cause is a reason, a message and a field."""
    qualified = f"{kind}.{group}" if group else kind
    told = [f"{field}: {message}" for _, message, field in causes]
    listed = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    details = {
        **({"name": name} if name else {}),
        **({"group": group} if group else {}),
        "kind": kind,
        "causes": [{"reason": reason, "message": message, "field": field} for reason, message, field in causes],
    }
    return ApiError(422, f'{qualified} "{name}" is invalid: {listed}', details=details)


def forbidden_list_option(field: str, message: str) -> ApiError:
    """A query parameter of list or watch is not allowed here."""
    return invalid("ListOptions", "", [("FieldValueForbidden", f"Forbidden: {message}", field)], group="meta.k8s.io")


def too_old(version: int, current: int) -> ApiError:
    """A watch wants to start before the oldest change that is kept."""
    return ApiError(410, f"too old resource version: {version} ({current})")


def continue_too_old() -> ApiError:
    """The rest of a list cannot be told any more as it was when the list began."""
    return ApiError(410, "The provided continue parameter is too old to display a consistent list result; start a new list.")


def too_large(version: int, current: int) -> ApiError:
    """The version asked for is not there yet."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return ApiError(504, f"Timeout: Too large resource version: {version}, current: {current}", details=details)


def refused(code: int, retry_after: int | None = None) -> ApiError:
    """An injected fault: the server is too busy, being started, or out of order."""
    messages = {429: "too many requests, please try again later", 503: "apiserver not ready", 500: "Internal Server Error"}
    details = {"retryAfterSeconds": retry_after} if retry_after is not None else None
    return ApiError(code, messages.get(code, REASONS.get(code, "injected")), details=details)
