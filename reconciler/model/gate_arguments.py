"""The rows of the table of acceptance tools, and the arguments that they take."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

Value = str | int | bool
Arguments = Mapping[str, Value]
COLLECTIVES: Final = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv")
STRESSORS: Final = "cpu,vm"
SERVER, PARTNERS, INTERFACE, SERVE = "server", "partners", "interface", "serve"  # arguments of tests between nodes
GROUP, SCOPE = "group", "scope"
RAILS, RAIL_BY_RAIL = "rails", "railByRail"
SCOPES: Final = ("leaf", "rack", "fabric")
RATE: Final = re.compile(r"[a-z][A-Za-z0-9]{0,62}")  # a rate that the HardwareProfile or the test's arguments declare


@dataclass(frozen=True, slots=True)
class Argument:
    """`check` returns what is wrong with a value, or "". `needs`: the argument without which it would do nothing."""

    about: str
    check: Callable[[Value], str]
    needed: bool = False
    needs: str = ""


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One tool.

    `metrics`: what it measures, as the documentation names it, and `pattern` the same for a machine. `required`: the
    metrics that each pass carries, or a function of the test's arguments that returns them. `counts`: the field of the
    inventory without which it can't pass. `experimental`: why its parser was never tried on what a real one printed;
    such a tool reports, and its result is never a pass. `units`: pattern of metrics -> unit, also of their parts; what
    has none is a count or a ratio. `seconds`: how long it runs unless args.seconds says; 0 where no time is set.
    """

    name: str
    about: str
    metrics: str
    pattern: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    required: tuple[str, ...] | Callable[[Arguments], tuple[str, ...]] = ()
    counts: str = ""
    experimental: str = ""
    units: Mapping[str, str] = field(default_factory=dict)
    seconds: int = 0

    def measures(self, metric: str) -> bool:
        return re.fullmatch(self.pattern, metric) is not None


def whole(low: int, high: int, about: str) -> Argument:
    def check(value: Value) -> str:
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return "" if fits else f"must be a whole number from {low} to {high}"

    return Argument(about, check)


def text(pattern: str, what: str, about: str, *, needed: bool = False) -> Argument:
    fits = re.compile(pattern)
    return Argument(
        about,
        lambda value: "" if isinstance(value, str) and fits.fullmatch(value) else f"{value!r} is not {what}",
        needed,
    )


def one_of(values: tuple[str, ...], about: str) -> Argument:
    return Argument(about, lambda value: "" if value in values else f"{value!r} is not one of {', '.join(values)}")


def flag(about: str) -> Argument:
    return Argument(about, lambda value: "" if isinstance(value, bool) else "must be true or false")


def command_line(value: Value) -> str:
    return "" if isinstance(value, str) and value else f"{value!r} is no command line"


def listed(value: Value) -> tuple[str, ...]:
    """Return the names in a list like `a, b`."""
    return tuple(name.strip() for name in str(value).split(",") if name.strip())


def directory(about: str) -> Argument:
    return text(
        r"/(?!dev(/|$)|proc(/|$)|sys(/|$))(?:[\w.-]+(?:/(?!\.\.?(/|$))[\w.-]+)*)",
        "an absolute directory outside /dev, /proc and /sys",
        about,
        needed=True,
    )


BETWEEN_NODES: Final[Mapping[str, Argument]] = {
    PARTNERS: whole(2, 8, "How many nodes it has to pass with, both ways."),
    INTERFACE: text(r"[A-Za-z0-9._-]{1,15}", "an interface", "Interface of a partner whose address is used."),
}
TOGETHER: Final[Mapping[str, Argument]] = {
    GROUP: whole(4, 64, "Nodes of one collective, this one among them; in place of `partners`."),
    SCOPE: one_of(SCOPES, "Where the others of a group are; `fabric` is anywhere, and `leaf` holds unless said."),
    INTERFACE: text(r"[A-Za-z0-9._-]{1,15}", "an interface", "Interface of each node over which they find each other."),
    RAILS: text(r"\w+(\s*,\s*\w+)*", "a list of devices like mlx5_0,mlx5_1", "RDMA devices that NCCL is held to."),
    RAIL_BY_RAIL: flag("Whether it runs over each of `rails` by itself, one after another, each within `timeout`."),
    "user": text(r"[a-z_][a-z0-9_-]{0,31}", "a user", "User on the nodes whom it runs as; `nobody` unless said."),
}
ONE_WAY: Final = (SERVER, "reverse", "way", "bidirectional")  # arguments that tests with partners decide themselves


def between_nodes(args: Arguments) -> bool:
    """Return whether a test takes other nodes: partners, or the rest of a group."""
    return PARTNERS in args or GROUP in args


def collective_arguments() -> Mapping[str, Argument]:
    size = r"[0-9]{1,15}[KMG]?"
    return {
        "collective": one_of(COLLECTIVES, "Collective to run; `all_reduce` unless said."),
        "minBytes": text(size, "a message size like 8G", "Smallest message; `8G` unless said."),
        "maxBytes": text(size, "a message size like 8G", "Largest message; `16G` unless said."),
        PARTNERS: whole(2, 8, "How many nodes it has to pass with, in pairs."),
        **TOGETHER,
    }
