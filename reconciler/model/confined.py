"""A value that holds a secret or a session does not leave its process, whatever is pickled around it.

Workers of an engine get what they compute from by pickle. What opens a door stays where it was read: each worker has
the secrets of its own site, and no others.
"""

from __future__ import annotations

from typing import NoReturn, SupportsIndex


class Confined:
    """A base of values that refuse to be pickled and copied."""

    __slots__ = ()

    def __reduce_ex__(self, _protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds a secret or a session, and is not serialised")
