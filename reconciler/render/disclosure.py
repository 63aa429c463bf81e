"""One walk over values of the model that shows, hides or collects each field as its mark says (model/privacy.py).

It denies by default: a class with a field that can hold text and has no mark is refused before a value of it is
walked. Publishing, redaction and the HTML page are policies for this walk: they differ in what they do with a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from enum import Enum
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from reconciler.model.privacy import Privacy

C = TypeVar("C")
T = TypeVar("T")

Show = Callable[..., Any]  # (value, context) -> what is shown of the value, which is not empty
Read = Callable[[Any], tuple[Any, ...]]  # dataclass -> values of some of its fields

_TEXTLESS: Final = (bool, int, float, datetime, NoneType, Enum)
_EMPTY: Final[Mapping[Any, Any]] = {str: "", Mapping: {}, tuple: ()}


class UnmarkedFieldError(TypeError):
    """A field that can hold text does not say who may read it."""


def keep(value: Any, _context: Any) -> Any:
    """Show the value as it is."""
    return value


def blank(_value: Any, _context: Any) -> Any:
    """Stand in a policy for: show what is empty for the type of the field, None where the type allows it."""
    raise NotImplementedError


def number(_value: Any, _context: Any) -> Any:
    """Stand in a policy for: show the position in the list that the value belongs to."""
    raise NotImplementedError


@dataclass(frozen=True)
class Policy(Generic[C]):
    """The parts of a document that one kind of reader may see. `C`: the class of the context of a walk.

    marks     how to show a value with this mark; where a mark is missing here, the walk goes on inside the value
    classes   how to show a value of this class, whose fields depend on one another
    scopes    for NODE and PATH: the context for the values that stand beside or below such a name
    """

    marks: Mapping[Privacy, Callable[[Any, C], Any]]
    classes: Mapping[type, Callable[[Any, C], Any]] = field(default_factory=dict)
    scopes: Mapping[Privacy, Callable[[C, str], C]] = field(default_factory=dict)
    _compiled: dict[type, Show] = field(default_factory=dict, init=False, repr=False)

    def show(self, value: T, context: C) -> T:
        """Return `value` as this policy shows it, and the same object where all of it is shown.

        Raise UnmarkedFieldError for a class with a field that has no mark.
        """
        shown: T = self.compiled(value.__class__)(value, context)
        return shown

    def compiled(self, kind: type) -> Show:
        """Return the function that shows values of a class."""
        if kind not in self._compiled:
            self._compiled[kind] = self._function(kind, {}, kind.__name__)
        return self._compiled[kind]

    def _function(self, kind: Any, bound: Mapping[Any, Any], where: str) -> Show:
        """Return the function for a type. `bound`: what type variables stand for; `where`: the field, for an error."""
        kind = bound.get(kind, kind)
        origin, arguments = get_origin(kind) or kind, get_args(kind)
        if origin is Annotated:
            show = _of_mark(self.marks, kind)
            if show is None:
                return self._function(arguments[0], bound, where)
            return _Empty.of(arguments[0]) if show is blank else show
        if isinstance(origin, type) and is_dataclass(origin):
            return self.classes.get(origin) or self._of_class(origin, arguments)
        if isinstance(origin, type) and issubclass(origin, _TEXTLESS):
            return keep
        if origin not in (Union, UnionType, tuple, frozenset, Sequence, Mapping):
            raise UnmarkedFieldError(f"{where}: its annotation must say who may read this {kind} (model/privacy.py)")
        parts = [self._function(each, bound, where) for each in arguments if each is not Ellipsis]
        if all(show is keep for show in parts):
            return keep
        if origin is Mapping:
            return _of_mapping(parts[0], parts[1], _of_mark(self.scopes, arguments[0]))
        if origin in (Union, UnionType):
            return _of_union(dict(zip(map(_class_of, arguments), parts, strict=True)))
        return _of_sequence(parts[0], numbered=self._position(arguments[0]) is not None)

    def _of_class(self, kind: Any, arguments: Sequence[Any]) -> Show:
        """Return the function that makes a dataclass anew where one of its fields is not shown as it is."""
        hints = get_type_hints(kind, include_extras=True)
        bound = dict(zip(getattr(kind, "__parameters__", ()), arguments, strict=False))
        names = [each.name for each in fields(kind)]
        shows = [self._function(hints[name], bound, f"{kind.__name__}.{name}") for name in names]
        position = self._position(kind)
        empty = [(at, show.value) for at, show in enumerate(shows) if isinstance(show, _Empty)]
        others = [
            (at, show)
            for at, show in enumerate(shows)
            if show is not keep and at != position and not isinstance(show, _Empty)
        ]
        read = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
        scopes = [(attrgetter(name), scope) for name in names if (scope := _of_mark(self.scopes, hints[name]))]
        if empty or position is not None:
            return _of_shortened(kind, read, others, scopes, empty, position)
        return _of_whole(kind, read, [(at, attrgetter(names[at]), show) for at, show in others], scopes)

    def _position(self, kind: Any) -> int | None:
        """Return the place of the field that this policy shows as a position in a list."""
        if not is_dataclass(kind) or self.marks.get(Privacy.ORDINAL) is not number:
            return None
        hints = get_type_hints(kind, include_extras=True)
        return next(
            (at for at, each in enumerate(fields(kind)) if _of_mark(self.marks, hints[each.name]) is number), None
        )


# --- types --------------------------------------------------------------------------------------------------------


def _of_mark(table: Mapping[Privacy, T], kind: Any) -> T | None:
    """Return what the table has for the outermost mark of a type that it knows."""
    return next((table[mark] for mark in reversed(getattr(kind, "__metadata__", ())) if mark in table), None)


def _class_of(kind: Any) -> Any:
    """Return the class that values of one option of a union have."""
    base = kind.__origin__ if get_origin(kind) is Annotated else kind
    return get_origin(base) or base


@dataclass(frozen=True, slots=True)
class _Empty:
    """Show what is empty for a type."""

    value: Any

    @classmethod
    def of(cls, kind: Any) -> _Empty:
        options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        return cls(None if NoneType in options else _EMPTY[_class_of(options[0])])

    def __call__(self, _value: Any, _context: Any) -> Any:
        return self.value


# --- functions for types that hold others -------------------------------------------------------------------------


def _of_shortened(
    kind: Any,
    read: Read,
    others: Sequence[tuple[int, Show]],
    scopes: Sequence[tuple[Show, Show]],
    empty: Sequence[tuple[int, Any]],
    position: int | None,
) -> Show:
    """A dataclass with fields that are left out, which is made anew in any case."""

    def show(value: Any, context: Any, at: int = 0) -> Any:
        for name, scope in scopes:
            context = scope(context, name(value))
        parts = list(read(value))
        for place, each in others:
            if parts[place]:
                parts[place] = each(parts[place], context)
        for place, nothing in empty:
            parts[place] = nothing
        if position is not None:
            parts[position] = str(at)
        return kind(*parts)

    return show


def _of_whole(
    kind: Any, read_all: Read, others: Sequence[tuple[int, Show, Show]], scopes: Sequence[tuple[Show, Show]]
) -> Show:
    """A dataclass of which most values are often shown as they are. The same object where all of them are.

    Nothing has to be hidden of what is empty.
    """
    if not others:
        return keep

    def show(value: Any, context: Any) -> Any:
        for name, scope in scopes:
            context = scope(context, name(value))
        parts = None
        for place, read, each in others:
            part = read(value)
            if part and (shown := each(part, context)) is not part:
                parts = parts or list(read_all(value))
                parts[place] = shown
        return value if parts is None else kind(*parts)

    return show


def _of_mapping(show_key: Show, show: Show, scope: Callable[[Any, str], Any] | None) -> Show:
    def scoped(value: Any, context: Any) -> Any:
        return {key: show(part, scope(context, key)) if part else part for key, part in value.items()}  # type: ignore[misc]

    def shown(value: Any, context: Any) -> Any:
        return {show_key(key, context): show(part, context) if part else part for key, part in value.items()}

    return shown if scope is None else scoped


def _of_union(shows: Mapping[Any, Show]) -> Show:
    """Choose by the class of the value. None is empty, so an optional value has one class."""
    others = [show for each, show in shows.items() if each is not NoneType]
    return others[0] if len(others) == 1 else lambda value, context: shows[value.__class__](value, context)


def _of_sequence(show: Show, *, numbered: bool) -> Show:
    if numbered:
        return lambda value, context: tuple([show(part, context, at) for at, part in enumerate(value)])

    def shown(value: Any, context: Any) -> Any:
        parts = None
        for at, part in enumerate(value):
            if part and (other := show(part, context)) is not part:
                parts = parts or list(value)
                parts[at] = other
        return value if parts is None else tuple(parts)

    return shown
