"""The channels that a spec declares, as the values that messages are decided with."""

from __future__ import annotations

from reconciler.model.limits import Hours
from reconciler.model.notices import Channel, NoticeEvent, Severity
from tests.spec.example import load

SAID = """\
  notifications:
  - {name: pager, url: pager-url, severity: critical}
  - name: ml
    url: ml-chat
    events: [isolated, done]
    owners: [ml]
    personas: [training]
    quietHours: [{days: [sat, sun], from: "00:00", to: "24:00", timezone: Europe/Berlin}]
    digest: 1d
    windowNotice: 30m
  defaults:"""


def test_channels_are_resolved() -> None:
    owned = ("pool.yaml", "spec:\n", "spec:\n  owner: ml\n")
    assert load(("fleet.yaml", "  defaults:", SAID), owned).settings.notifications == (
        Channel("pager", "pager-url", tuple(NoticeEvent), Severity.CRITICAL),
        Channel(
            "ml", "ml-chat", (NoticeEvent.ISOLATED, NoticeEvent.DONE), Severity.INFO, ("train",), ("training",),
            (Hours((5, 6), 0, 1440, "Europe/Berlin"),), 86400.0, 1800.0,
        ),
    )  # fmt: skip


def test_nobody_is_told_unless_the_spec_says_so() -> None:
    assert load().settings.notifications == ()
