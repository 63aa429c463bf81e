"""Roles of those who use the API of `run`."""

from __future__ import annotations

from enum import StrEnum


class AccessRole(StrEnum):
    """A role; each may do what those before it may."""

    VIEWER = "viewer"  # reads
    OPERATOR = "operator"  # holds, releases, stops
    ADMIN = "admin"  # lifts a stop, approves

    def covers(self, other: AccessRole) -> bool:
        order = list(AccessRole)
        return order.index(self) >= order.index(other)
