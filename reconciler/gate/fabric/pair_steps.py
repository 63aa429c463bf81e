"""Decide the next step of a gate's test with partners, from what it has measured so far, until its verdict.

The first partner is behind the node's own leaf, the second behind another one. When two independent partners disagree
with the node, they test each other: that they pass proves both, the leaf and the way between the leaves, and only then
is the node at fault. When they fail as well, a common cause is, and that is an incident and nobody's fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reconciler.gate.fabric.bisect import Passed
from reconciler.gate.fabric.blame import PARTNERS
from reconciler.gate.fabric.pair_verdict import Decision, PairResult, PairVerdict, judge_pairs
from reconciler.model.gate import Verdict

SPARE = 2  # partners that are asked beyond those that are wanted, when some could not test or disagree


class Met(NamedTuple):
    """A partner and what the node measured with it. `near`: it is behind the node's own leaf."""

    partner: str
    near: bool
    certified: bool
    passed: Passed


class Control(NamedTuple):
    """A test of two partners with each other, neither of which is the node."""

    one: str
    other: str
    passed: Passed


@dataclass(frozen=True, slots=True)
class Ask:
    """Test with one more partner: behind the node's own leaf if `near`, else behind another one."""

    near: bool


@dataclass(frozen=True, slots=True)
class AskControl:
    """Let two partners test each other."""

    one: str
    other: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The verdict. UNJUDGED with `incident`: a cause that nodes share. `agree`: partners that passed."""

    verdict: Verdict
    why: str = ""
    agree: tuple[str, ...] = ()
    disagree: tuple[str, ...] = ()
    incident: bool = False


def next_step(
    met: Sequence[Met], controls: Sequence[Control], wanted: int, nobody: Sequence[bool] = ()
) -> Ask | AskControl | Ended:
    """Return what to do next. `nobody`: sides (near or not) on which no further partner can be had."""
    found = judge_pairs([PairResult(one.partner, one.passed, one.certified) for one in met], wanted)
    ask = _ask(met, wanted, nobody)
    if found.decision is Decision.CLEARED:
        return _both_sides(met, found, wanted, nobody)
    if found.agree and found.disagree:
        return ask or _mixed(met, found)
    if len(found.disagree) >= PARTNERS:
        return _several_disagree(met, controls, found, ask)
    return ask or Ended(Verdict.UNJUDGED, _too_few(met, found, wanted), found.agree, found.disagree)


def _ask(met: Sequence[Met], wanted: int, nobody: Sequence[bool]) -> Ask | None:
    """Return the side of the next partner: the one that fewer were heard of; None when nobody is left to ask."""
    if len(met) >= wanted + SPARE:
        return None
    heard = [one.near for one in met if one.passed is not Passed.ERROR]
    first = heard.count(True) <= heard.count(False)
    side = next((near for near in (first, not first) if near not in nobody), None)
    return None if side is None else Ask(side)


def _both_sides(met: Sequence[Met], found: PairVerdict, wanted: int, nobody: Sequence[bool]) -> Ask | Ended:
    """Clear the node once partners of both sides passed: those behind its leaf alone prove no way up from there."""
    passed = {one.near for one in met if one.passed is Passed.YES}
    missing = [near for near in (True, False) if near not in passed and near not in nobody]
    if not missing:
        return _cleared(found)
    if len(met) < wanted + SPARE:
        return Ask(missing[0])
    return (
        _mixed(met, found)
        if found.disagree
        else Ended(Verdict.UNJUDGED, _too_few(met, found, wanted), found.agree, found.disagree)
    )


def _cleared(found: PairVerdict) -> Ended:
    why = f"suspected: {', '.join(found.suspects)}, or the way there" if found.suspects else ""
    return Ended(Verdict.PASS, why, found.agree, found.disagree)


def _mixed(met: Sequence[Met], found: PairVerdict) -> Ended:
    """Convict nobody of what some partners see and others don't. When the leaf divides them, it is the way up there."""
    near = {one.near for one in met if one.partner in found.agree}
    divided = near == {True} and not any(one.near for one in met if one.partner in found.disagree)
    told = f"passes with {', '.join(found.agree)}, fails with {', '.join(found.disagree)}"
    cause = "the way between its leaf and others is suspected" if divided else "no node is convicted by that"
    return Ended(Verdict.UNJUDGED, f"{told}: {cause}", found.agree, found.disagree, incident=divided)


def _several_disagree(
    met: Sequence[Met], controls: Sequence[Control], found: PairVerdict, ask: Ask | None
) -> Ask | AskControl | Ended:
    """Convict the node if its partners pass with each other, through the node's own leaf."""
    near = [one.partner for one in met if one.near and one.partner in found.disagree]
    far = [one.partner for one in met if not one.near and one.partner in found.disagree]
    told = f"fails with {', '.join(found.disagree)}"
    if not near:
        why = f"{told}, all behind other leaves: the node or its leaf is at fault, and no partner tells which"
        return ask or Ended(Verdict.UNJUDGED, why, (), found.disagree, incident=True)
    if not far and isinstance(ask, Ask) and not ask.near:
        return ask
    one, other = near[0], (far or near[1:])[0]
    control = next((each for each in controls if {each.one, each.other} == {one, other}), None)
    if control is None:
        return AskControl(one, other)
    pair = f"{one} and {other}"
    if control.passed is Passed.YES:
        return Ended(Verdict.FAIL, f"{told}, which pass with each other ({pair})", (), found.disagree)
    if control.passed is Passed.NO:
        why = f"{told}, and {pair} fail with each other: a common cause, and no node is convicted"
        return Ended(Verdict.UNJUDGED, why, (), found.disagree, incident=True)
    return Ended(Verdict.UNJUDGED, f"{told}, but {pair} could not test each other", (), found.disagree)


def _too_few(met: Sequence[Met], found: PairVerdict, wanted: int) -> str:
    heard = len([one for one in met if one.passed is not Passed.ERROR])
    told = f"needs partners: {wanted} are wanted, {heard} could be tested with"
    if found.disagree:
        return f"{told}; it fails with {', '.join(found.disagree)}, which alone convicts nobody"
    if any(one.passed is Passed.NO for one in met):
        return f"{told}; a partner that it fails with has no valid certificate, so it convicts nobody"
    return told
