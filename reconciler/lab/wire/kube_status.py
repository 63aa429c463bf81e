"""The Status objects with which an API server refuses requests, as kubectl and client libraries parse them."""

from __future__ import annotations

from typing import Any

_BARE = (404, 405, 415, 422)  # generic errors have empty details


class ApiError(Exception):
    """Ends a request. `reason` and `code` as in k8s.io/apimachinery metav1.StatusReason."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def body(self) -> dict[str, Any]:
        details = {"details": self.details} if self.details or self.code in _BARE else {}
        reason = {"reason": self.reason} if self.reason else {}  # the eviction's own 500 has none
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            **reason,
            **details,
            "code": self.code,
        }


def success(code: int, **details: Any) -> dict[str, Any]:
    more = {"details": details} if details else {}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **more, "code": code}


def not_found(resource: str, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource} "{name}" not found', name=name, kind=resource)


def forbidden(verb: str, resource: str, name: str, namespace: str | None, user: str) -> ApiError:
    """Return RBAC's refusal. `resource`: with its subresource."""
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    kind = resource.partition("/")[0]
    what = f'{kind} "{name}"' if name else kind
    message = f'{what} is forbidden: User "{user}" cannot {verb} resource "{resource}" in API group "" {where}'
    return ApiError(403, "Forbidden", message, **({"name": name} if name else {}), kind=kind)


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def unsupported_media_type() -> ApiError:
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type")


def conflict(resource: str, name: str, message: str) -> ApiError:
    return ApiError(409, "Conflict", message, name=name, kind=resource)


def already_exists(resource: str, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{resource} "{name}" already exists', name=name, kind=resource)


def unavailable() -> ApiError:
    return ApiError(503, "ServiceUnavailable", "the server is currently unable to handle the request")


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def invalid(kind: str, name: str, field: str, message: str, reason: str = "FieldValueInvalid") -> ApiError:
    causes = [{"reason": reason, "message": message, "field": field}]
    return ApiError(
        422, "Invalid", f'{kind} "{name}" is invalid: {field}: {message}', name=name, kind=kind, causes=causes
    )


def bad_patch() -> ApiError:
    """Return the error for a JSON patch that can't be applied. The real server hides the cause as well."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request")


def budget_forbids(name: str, wanted: int, healthy: int) -> ApiError:
    message = f"The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
    return ApiError(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        causes=[{"reason": "DisruptionBudget", "message": message}],
    )
