"""One walk over values of the model that shows, hides or collects each field as its mark says (model/privacy.py).

It denies by default: a class with a field that can hold text and has no mark is refused before a value of it is
walked. Publishing, redaction and the HTML page are policies for this walk: they differ in what they do with a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from reconciler.model.privacy import Privacy

C = TypeVar("C")
T = TypeVar("T")

Show = Callable[..., Any]  # (value, context) -> what is shown of the value, which is not empty

_TEXTLESS: Final = (bool, int, float, datetime, timedelta, NoneType, Enum)
_EMPTY: Final[Mapping[Any, Any]] = {str: "", Mapping: {}, tuple: (), timedelta: timedelta()}


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
    omitted   the fields of a class that are shown empty, whatever their marks
    scopes    for NODE and PATH: the context for the values that stand beside or below such a name
    """

    marks: Mapping[Privacy, Callable[[Any, C], Any]]
    classes: Mapping[type, Callable[[Any, C], Any]] = field(default_factory=dict)
    omitted: Mapping[type, tuple[str, ...]] = field(default_factory=dict)
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
        shows = {name: self._function(hints[name], bound, f"{kind.__name__}.{name}") for name in names}
        shows.update({name: _Empty.of(hints[name]) for name in self.omitted.get(kind, ())})
        scopes = {name: scope for name in names if (scope := _of_mark(self.scopes, hints[name])) is not None}
        position = self._position(kind)
        return _of_fields(kind, shows, scopes, None if position is None else names[position])

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
        kind = kind.__origin__ if get_origin(kind) is Annotated else kind
        options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        return cls(None if NoneType in options else _EMPTY[_class_of(options[0])])

    def __call__(self, _value: Any, _context: Any) -> Any:
        return self.value


# --- functions for types that hold others -------------------------------------------------------------------------


def _of_fields(kind: Any, shows: Mapping[str, Show], scopes: Mapping[str, Show], position: str | None) -> Show:
    """Return the function for a dataclass: the same object where all of its fields are shown as they are.

    Its code is generated, as that of `dataclasses` is: a report walks millions of fields, and most are shown as they
    are. Nothing has to be hidden of what is empty. `position`: the field that is shown as the place in a list.
    """
    others = {name: show for name, show in shows.items() if show is not keep and name != position}
    if not others and position is None:
        return keep
    known: dict[str, Any] = {"kind": kind}
    lines = ["def show(value, context, at=0):", f" same = {position is None}"]
    for name, scope in scopes.items():
        known[f"scope_{name}"] = scope
        lines.append(f" context = scope_{name}(context, value.{name})")
    for name, show in others.items():
        lines.append(f" was = new_{name} = value.{name}")
        if isinstance(show, _Empty):
            known[f"empty_{name}"] = show.value
            lines.append(f" if was != empty_{name}: new_{name} = empty_{name}; same = False")
        else:
            known[f"show_{name}"] = show
            lines.append(f" if was and (new_{name} := show_{name}(was, context)) is not was: same = False")
    parts = ["str(at)" if name == position else f"new_{name}" if name in others else f"value.{name}" for name in shows]
    lines.append(f" return value if same else kind({', '.join(parts)})")
    exec("\n".join(lines), known)  # noqa: S102 - of the names of our own fields
    made: Show = known["show"]
    return made


def _of_mapping(show_key: Show, show: Show, scope: Callable[[Any, str], Any] | None) -> Show:
    def with_keys(value: Any, context: Any) -> Any:
        return {show_key(key, context): show(part, context) if part else part for key, part in value.items()}

    def shown(value: Any, context: Any) -> Any:
        parts = None
        for key, part in value.items():
            below = context if scope is None else scope(context, key)
            if part and (other := show(part, below)) is not part:
                parts = parts or dict(value)
                parts[key] = other
        return value if parts is None else parts

    return shown if show_key is keep or scope is not None else with_keys


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
