"""The hot read of each pass: at most six GETs, once URIs and old tasks are known (DESIGN section 5).

It reads the system, its settings object where it has one (AMI, OpenBMC), the BIOS settings, BIOS only when those list
something to compare, the list of tasks, and the tasks that were not seen to end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from reconciler.drivers.redfish import bios, indicator, system, tasks
from reconciler.drivers.redfish.failures import HttpError
from reconciler.drivers.redfish.fields import Document, Unknown, link, member, need, stated, text
from reconciler.drivers.redfish.quirks import Quirks
from reconciler.drivers.redfish.session import Resource
from reconciler.drivers.redfish.tree import Survey, Tree, numbers
from reconciler.model.observed import AttributeValue, BmcTask, RedfishHot

_MOST_GETS = 6
_MOST_GETS_AT_FIRST = 64  # when nothing is known of any task


def read_hot(tree: Tree, running: Tasks) -> RedfishHot:
    before = tree.session.gets
    survey = Survey()
    found = tree.system()
    quirks = tree.quirks(found.body)
    boot = survey.read("boot_override", lambda: boot_of(tree, found)[0])
    return replace(
        of_system(found.body, boot, quirks, survey),
        pending_bios=survey.read("pending_bios", lambda: pending(tree, found.body, quirks)),
        tasks=survey.read("tasks", lambda: running.unfinished(_MOST_GETS + before - tree.session.gets)),
        etag=found.etag,
    )


def of_system(document: Document, boot: Document | None, quirks: Quirks | None, survey: Survey) -> RedfishHot:
    """Decode the system's own document. Pure."""
    return RedfishHot(
        manufacturer=survey.read("manufacturer", lambda: need(document, "Manufacturer", stated)),
        model=survey.read("model", lambda: need(document, "Model", stated)),
        serial=survey.read("serial", lambda: system.serial(document, quirks)),
        uuid=survey.read("uuid", lambda: system.uuid(document)),
        power=survey.read("power", lambda: system.power(document)),
        boot_phase=survey.read("boot_phase", lambda: system.boot_phase(document, quirks)),
        boot_override=None if boot is None else survey.read("boot_override", lambda: system.boot_override(boot)),
        pending_bios=None,
        tasks=None,
        health=survey.read("health", lambda: system.rollup(document)),
        indicator=survey.read("indicator", lambda: indicator.is_lit(document, quirks)),
        unknown=survey.unknown,
    )


def boot_of(tree: Tree, found: Resource) -> tuple[Document, Resource]:
    """Return Boot with the staged override, and the resource that accepts changes of it."""
    where = link(member(found.body, "@Redfish.Settings"), "SettingsObject")
    if where is not None:
        try:
            settings = tree.get(where)
        except HttpError as error:
            if error.status != 404:
                raise
        else:
            accepts = "BootSourceOverrideTarget" in member(settings.body, "Boot")
            return system.boot_section(found.body, settings.body), settings if accepts else found
    return member(found.body, "Boot"), found


def pending(tree: Tree, document: Document, quirks: Quirks | None) -> Mapping[str, AttributeValue]:
    settings = tree.bios_settings(document)
    staged = {} if settings is None else bios.staged(settings.body)
    if not staged or (quirks is not None and quirks.pending_is_delta):
        return staged
    return bios.differing(staged, bios.attributes(tree.follow(document, "Bios").body))


class Tasks:
    """The unfinished tasks of one BMC. A task that was seen to end is not read again."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._ended: set[str] = set()
        self._newest: tuple[str, datetime | None] = ("", None)
        self._logins = -1

    def unfinished(self, gets: int) -> tuple[BmcTask, ...]:
        """Read the list, and within `gets` requests the tasks that may run; return the unfinished, newest first."""
        if self._logins != self._tree.session.logins:
            # After another login the BMC may have restarted, and number its tasks anew.
            self._ended.clear()
            gets = _MOST_GETS_AT_FIRST
        where, listed = self._tree.tasks()
        waiting = self._waiting(listed)
        gets -= 1
        if len(waiting) > gets and self._tree.expands(where):
            waiting = self._waiting(self._tree.expanded(where))
            gets -= 1
        found = []
        for uri, item in sorted(waiting, key=lambda entry: numbers(entry[0]), reverse=True):
            has_state = text(item, "TaskState") is not None
            gets -= not has_state
            if gets < 0:
                raise Unknown("more tasks are listed than one pass may read; the next passes will")
            found.append(self._note(uri, item if has_state else self._tree.get(uri).body))
        self._logins = self._tree.session.logins
        return tuple(task for task in found if not task.done)

    def expect(self, uri: str, now: datetime) -> None:
        """Note a task that was just started: a BMC that restarted counts from 1 again."""
        self._ended.discard(uri)
        self._newest = uri, now

    def starting(self, uri: str, now: datetime) -> BmcTask | None:
        """Return a task that this make of BMC may not list for a while after naming it (pitfall A5), else None."""
        newest, started = self._newest
        if uri != newest or started is None or (now - started).total_seconds() >= self._tree.behaviours().task_grace:
            return None
        return BmcTask(uri, "started, and not listed yet", done=False, ok=None)

    def _waiting(self, listed: list[tuple[str, Document]]) -> list[tuple[str, Document]]:
        self._ended &= {uri for uri, _ in listed}
        return [(uri, item) for uri, item in listed if uri not in self._ended]

    def _note(self, uri: str, document: Document) -> BmcTask:
        found = tasks.task(uri, document, self._tree.behaviours())
        if found.done:
            self._ended.add(uri)
        return found
