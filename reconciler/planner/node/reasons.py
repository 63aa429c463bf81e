"""Explain a node's plan in words: what each action is for, and what prevents a goal."""

from __future__ import annotations

from collections.abc import Container

from reconciler.model.desired import Desired
from reconciler.model.plan import BlockCode, Blocked
from reconciler.model.records import NodeRecord
from reconciler.planner.node import conditions as c
from reconciler.planner.node.catalogue import Catalogue, Row
from reconciler.planner.node.conditions import Conditions, Context
from reconciler.planner.node.goals import Situation, changes, goal_conditions, usable_rows
from reconciler.planner.node.search import apply
from reconciler.planner.node.unknowns import summarize


def starting_conditions(full: Catalogue, state: Conditions) -> frozenset[str]:
    """Return the conditions that the search starts from. Where the cause of an unknown is known, health is assumed.

    So is MIG that is off, where the spec does not manage it: no action of ours brings it about.
    """
    managed = any(c.GPU_PLAIN in row.achieves for row in full.rows)
    assumed = {c.HEALTHY, c.HARDWARE} if managed else {c.HEALTHY, c.HARDWARE, c.GPU_PLAIN}
    return state.true | (assumed & state.explained.keys())


def unmet(state: Conditions, wanted: frozenset[str]) -> str:
    """Return the wanted conditions that are not true, each with its reason, in words."""
    parts = []
    for name in sorted(wanted - state.true):
        why = state.unknown.get(name) or "; ".join(state.because.get(name, ())) or state.explained.get(name, "")
        parts.append(f"{_words(name)} ({why})" if why else _words(name))
    return ", ".join(parts)


def undrainable(state: Conditions) -> str:
    """Return why the drain policy forbids to empty the node, as the end of a sentence; "" if it does not."""
    return "".join(f"; it can't be drained: {why}" for why in state.because.get(c.QUIESCED, ()))


def _words(condition: str) -> str:
    """Return a condition as reports name it: firmware_ok:nic0 is "firmware nic0"."""
    return "MIG mode" if condition == c.GPU_PLAIN else condition.replace("_ok", "").replace(":", " ").replace("_", " ")


def no_path(
    desired: Desired, state: Conditions, found: Situation, full: Catalogue, record: NodeRecord, context: Context
) -> Situation:
    """Return the situation of a node that no actions bring to its goal, and say which conditions are in the way."""
    missing = (found.wanted if state.leaving or state.repair else goal_conditions(desired, state)) - state.true
    unknown = {name: why for name, why in state.unknown.items() if name in missing}
    usable = {row.id for row in usable_rows(full, state, found, record, context.now).rows}
    used_up = sorted(
        {row.id for row in full.rows if row.id not in usable and not set(row.achieves) & set(state.unknown)}
    )
    reached = {name for row in full.rows if row.id in usable for name in full.brings(row)}
    refused = {
        row.id: why
        for row in full.rows
        if (why := state.impossible.get(row.id)) and full.brings(row) & missing - reached
    }
    if refused:
        detail = f"this can't be done: {'; '.join(f'{name}: {why}' for name, why in refused.items())}"
        code = BlockCode.IMPOSSIBLE
    elif state.unread.remedy and c.HOST_UP in missing:
        detail = state.unread.remedy
        code = BlockCode.NO_PATH
    elif unknown:
        detail = summarize({_words(name): why for name, why in sorted(unknown.items())}, desired)
        code = BlockCode.UNKNOWN
    elif state.fell_back and c.IMAGE in missing:
        name = desired.node
        detail = (
            f"{state.fell_back}; it had come up before, so it is not written again by itself: see to it (`reconciler "
            f"hold {name} --reason ...`, then `reconciler release {name}`), or let the spec name another image"
        )
        code = BlockCode.NO_PATH
    elif state.gate_failed and not changes(state):
        name = desired.node
        detail = (
            f"it failed its gate ({state.gate_failed}), which is not run again before a repair is on record: "
            f"`reconciler hold {name} --reason ...` while you see to it, then `reconciler release {name}`"
        )
        code = BlockCode.GATE
    elif state.because.get(c.QUIESCED):
        what = unmet(state, missing - {c.IN_SERVICE}) or _words(c.IN_SERVICE)
        detail = f"no sequence of actions brings about: {what}{undrainable(state)}"
        code = BlockCode.NO_DRAIN
    elif used_up:
        name = desired.node
        detail = (
            f"{', '.join(used_up)} failed too often{_last_words(record, used_up)}; when that is put right, `reconciler "
            f"hold {name} --reason ...`, then `reconciler release {name}`; unmet: {unmet(state, missing)}"
        )
        code = BlockCode.ATTEMPTS
    else:
        detail, code = _no_way(state, missing, full), BlockCode.NO_PATH
    return Situation(found.goal, "left alone: " + detail, found.wanted, Blocked(code, detail), found.harmless_only)


def _last_words(record: NodeRecord, actions: Container[str]) -> str:
    """Return how the last of these actions failed, as the end of a sentence."""
    failed = (one for one in record.attempts if one.outcome not in ("done", "started", "refused"))
    said = [one.detail for one in failed if f"{one.action}:{one.target}".rstrip(":") in actions]
    return f" ({said[-1]})" if said and said[-1] else ""


def _no_way(state: Conditions, missing: frozenset[str], full: Catalogue) -> str:
    """Return what is missing. What the actions for it need and no action brings about comes first, with its reason."""
    brought = frozenset().union(*(full.brings(row) for row in full.rows))
    needed = frozenset(name for row in full.rows if full.brings(row) & missing for name in row.requires)
    if first := needed - starting_conditions(full, state) - brought:
        others = ", ".join(_words(name) for name in sorted(missing - first - {c.IN_SERVICE}))
        return f"{unmet(state, first)}, without which no sequence of actions brings about: {others}"
    return f"no sequence of actions brings about: {unmet(state, missing - {c.IN_SERVICE}) or _words(c.IN_SERVICE)}"


def reasons(full: Catalogue, state: Conditions, found: Situation, rows: tuple[Row, ...]) -> list[tuple[str, ...]]:
    """Return the reasons of each action: the drift that it removes, what undid its effect, or what requires it."""
    staged = {s.condition: s.achieves for s in full.staged}
    reached, undone_by, found_reasons = starting_conditions(full, state), dict[str, str](), []
    for at, row in enumerate(rows):
        after = apply(full, row, reached) | set(row.achieves)
        because: list[str] = []
        unseen: dict[str, list[str]] = {}
        for name in sorted(after - reached):
            final = staged.get(name, name)
            if final == c.IN_SERVICE:
                because.append("back into service")
            elif final in state.explained:
                unseen.setdefault(state.explained[final], []).append(_words(final))
            elif final in found.wanted and final in state.because:
                because += state.because[final]
            elif final in undone_by:
                because.append(f"{_words(final)} undone by {undone_by[final]}")
            else:
                because += [f"required by {later.id}" for later in rows[at + 1 :] if name in later.requires][:1]
        for name in reached - after:
            undone_by[name] = row.id
        because += [f"{' and '.join(names)} can't be seen: {cause}" for cause, names in unseen.items()]
        found_reasons.append(tuple(dict.fromkeys(because)) or found.evidence or (found.sentence,))
        reached = frozenset(after) - (reached - after)
    return found_reasons
