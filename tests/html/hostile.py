"""Strings as a broken or evil machine may send them, wherever a machine has a say."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from reconciler.app.drift_report import drift_report
from reconciler.model.records import Hold
from reconciler.render.html import Material

EVIL: Final = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>\u2028{{7*7}}&lt;b&gt;"
SHOWN: Final = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"  # of it, at the least
_MORE: Final = "<!--\u202e\u0000\ud800\x1b[31m"  # what no page may hold at all


def spoilt(material: Material) -> Material:
    """Every difference was found as EVIL, and everybody who wrote a word wrote it so."""
    nodes = {}
    for name, node in material.plan.nodes.items():
        drift = tuple(replace(item, observed=EVIL + _MORE, detail=EVIL + _MORE) for item in node.drift)
        blocked = None if node.blocked is None else replace(node.blocked, detail=EVIL)
        nodes[name] = replace(
            node, drift=drift, blocked=blocked, situation=EVIL, incomplete=tuple(EVIL for _ in node.incomplete)
        )
    plan = replace(material.plan, nodes=nodes, notes=(EVIL,), stopped=f"stopped by {EVIL}")
    histories = {
        name: replace(history, entries=[replace(entry, detail=EVIL, action=EVIL) for entry in history.entries])
        for name, history in material.histories.items()
    }
    holds = tuple(Hold(hold.id, hold.subject, EVIL, EVIL, hold.since) for hold in material.holds)
    report = drift_report(plan, material.observation)
    return replace(material, plan=plan, drift=report, histories=histories, holds=holds)
