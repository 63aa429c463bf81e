"""Marks that say who may read a field (DESIGN section 10).

Redaction goes by type, not by pattern. Each field that can hold text names its kind in its annotation, and
render/disclosure.py refuses a published type with a field that names none. Numbers, booleans, instants and
enumerations name no machine and need no mark.

A mark around a larger type is for all of it: `AllPublic[Profile]` shows a profile as it is.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Annotated, Any, TypeVar

T = TypeVar("T")


class Privacy(Enum):
    """The kinds of values, by who may read them. The policies in render/ decide how to show each kind."""

    PUBLIC = auto()  # anybody may read it
    IDENTIFIER = auto()  # tells one machine or part from all others: a serial number, a UUID, a host name
    ADDRESS = auto()  # where a machine answers
    FREE_TEXT = auto()  # words of a machine, a program or a person: anything may be in them
    UNPUBLISHED = auto()  # no plan needs it, so a published observation leaves it out
    NODE = auto()  # the name of a node, which is public; the values beside or below it are about this node
    PATH = auto()  # a value path, which is public; the values beside or below it are found there
    SPEC_VALUE = auto()  # what the spec says or once said: public, unless its path names a machine
    UNORDERED = auto()  # a tuple of identifiers whose order must not tell which is which
    ORDINAL = auto()  # an id that is unique in its list: the position in the list stands for it
    BIOS = auto()  # by attribute: those that the spec mentions are public
    LABELS = auto()  # by key: those that the spec mentions are public
    TAINTS = auto()  # those whose keys the spec mentions, and our own, are public
    ANNOTATIONS = auto()  # our own mark alone is public
    FABRIC_STATUS = auto()  # "Success" is public; anything else is the text of an error
    INPUTS = auto()  # inputs of a plan: digests of them are public


PublicText = Annotated[str, Privacy.PUBLIC]
Identifier = Annotated[str, Privacy.IDENTIFIER]
Address = Annotated[str | None, Privacy.ADDRESS]
FreeText = Annotated[str, Privacy.FREE_TEXT]
FreeValue = Annotated[Any, Privacy.FREE_TEXT]  # JSON values with free text in them
NodeName = Annotated[str, Privacy.NODE]
ValuePath = Annotated[str, Privacy.PATH]
SpecValue = Annotated[Any, Privacy.SPEC_VALUE]
AllPublic = Annotated[T, Privacy.PUBLIC]
Unpublished = Annotated[T, Privacy.UNPUBLISHED]
