"""Why a node's plan is as it is, in words: what each action is for, and what stands in the way of a goal."""

from __future__ import annotations

from reconciler.model.desired import Desired
from reconciler.model.plan import BlockCode, Blocked
from reconciler.model.records import NodeRecord
from reconciler.planner.node import conditions as c
from reconciler.planner.node.catalogue import Catalogue, Row
from reconciler.planner.node.conditions import Conditions, Context
from reconciler.planner.node.goals import Situation, changes, goal_conditions, usable_rows
from reconciler.planner.node.search import apply
from reconciler.planner.node.unknowns import sentence


def starting_conditions(state: Conditions) -> frozenset[str]:
    """What the search starts from. Behind a known cause, health is hoped for, and everything else is to be redone."""
    return state.true | ({c.HEALTHY, c.HARDWARE} & set(state.explained))


def unmet(state: Conditions, wanted: frozenset[str]) -> str:
    parts = []
    for name in sorted(wanted - state.true):
        why = state.unknown.get(name) or "; ".join(state.because.get(name, ())) or state.explained.get(name, "")
        parts.append(f"{_words(name)} ({why})" if why else _words(name))
    return ", ".join(parts)


def _words(condition: str) -> str:
    """firmware_ok:nic0 is "firmware nic0" to people, who know concerns and no conditions."""
    return "MIG mode" if condition == c.GPU_PLAIN else condition.replace("_ok", "").replace(":", " ").replace("_", " ")


def left_alone(
    desired: Desired, state: Conditions, found: Situation, full: Catalogue, record: NodeRecord, context: Context
) -> Situation:
    """No path: say which conditions stand in the way, and whether it is for want of knowledge, attempts or a remedy."""
    missing = goal_conditions(desired, state) - state.true
    unknown = {name: why for name, why in state.unknown.items() if name in missing}
    usable = {row.id for row in usable_rows(full, state, found, record, context.now).rows}
    tired = sorted({row.id for row in full.rows if row.id not in usable and not set(row.achieves) & set(state.unknown)})
    if unknown:
        detail = sentence({_words(name): why for name, why in sorted(unknown.items())}, desired)
        code = BlockCode.UNKNOWN
    elif state.gate_failed and not changes(state):
        name = desired.node
        detail = (
            f"it failed its gate ({state.gate_failed}), which is not run again before a repair is on record: "
            f"`reconciler hold {name} --reason ...` while you see to it, then `reconciler release {name}`"
        )
        code = BlockCode.GATE
    elif tired:
        detail = f"{', '.join(tired)} failed too often; unmet: {unmet(state, missing)}"
        code = BlockCode.ATTEMPTS
    else:
        detail = (
            f"no sequence of actions brings about: {unmet(state, missing - {c.IN_SERVICE}) or _words(c.IN_SERVICE)}"
        )
        code = BlockCode.NO_PATH
    return Situation(found.goal, "left alone: " + detail, found.wanted, Blocked(code, detail), found.harmless_only)


def reasons(full: Catalogue, state: Conditions, found: Situation, rows: tuple[Row, ...]) -> list[tuple[str, ...]]:
    """Why each action is there: the drift it removes, what undid its effect, or the later action that requires it."""
    staged = {s.condition: s.achieves for s in full.staged}
    reached, undone_by, found_reasons = starting_conditions(state), dict[str, str](), []
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
