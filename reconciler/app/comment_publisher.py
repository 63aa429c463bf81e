"""Where a report goes: which comment is edited, which is new, which verdict the commit gets (conventions R, D11)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from reconciler.model.drift import TOLD
from reconciler.model.errors import DriverError, Failure
from reconciler.model.forge import Check, Forge, Remark
from reconciler.model.plan import Plan
from reconciler.model.report import ApplyOutcome, DriftReport
from reconciler.render.comment import Comment, Kind, Place, comment, mark_of, status_line, with_status
from reconciler.render.headline import Verdict

CHECKS = {Verdict.GOOD: Check.SUCCESS, Verdict.BAD: Check.FAILURE, Verdict.BROKEN: Check.ERROR}


@dataclass(frozen=True, slots=True)
class CommentPublisher:
    """Posts for one run. `told` hears what was done, in words."""

    forge: Forge
    place: Place
    told: Callable[[str], None]
    afresh: bool = False  # a new comment for a new commit, and the old one folded away (conventions R2)

    async def sticky(self, pull: int, made: Comment, *, quiet: bool = False) -> None:
        """One comment per key, edited in place. `quiet`: not worth a comment, unless there is one to be corrected."""
        own = [remark for remark in await self.forge.remarks(pull) if _key(remark) == made.key]
        if own and await self._outdated(pull, own[-1]):
            self.told(f"#{pull}: a report of a newer commit is there, and stays")
        elif own and self.afresh and mark_of(own[-1].text).get("head") != self.place.head:
            await self._add(pull, made)
            await self._hide(own[-1])
        elif own:
            await self.forge.edit_remark(own[-1].id, made.text)
            self.told(f"edited {own[-1].url}")
        elif quiet:
            self.told(f"#{pull}: nothing to report, and no comment that would say otherwise")
        else:
            await self._add(pull, made)

    async def _hide(self, remark: Remark) -> None:
        """The report is there by now, and that is what counts."""
        try:
            await self.forge.hide_remark(remark)
        except DriverError as error:
            self.told(f"{remark.url} could not be folded away: {error}")

    async def _outdated(self, pull: int, there: Remark) -> bool:
        """Whether the pull request has moved on, and its newest commit has its report already."""
        of = mark_of(there.text).get("head")
        return bool(self.place.head) and of != self.place.head and of == (await self.forge.pull(pull)).head

    async def applied(self, pull: int, made: Comment) -> None:
        """What an apply did: a comment of its own, which nobody edits. The plan's only gains a line that says so."""
        before = await self.forge.remarks(pull)
        if any(_key(remark) == made.key and remark.text == made.text for remark in before):
            self.told(f"#{pull}: this has been reported already")
        else:
            await self._add(pull, made)
        key = made.key.replace(Kind.APPLY, Kind.PLAN, 1)
        for plan in [remark for remark in before if _key(remark) == key][-1:]:
            text = with_status(plan.text, status_line(made, self.place))
            if text != plan.text:
                await self.forge.edit_remark(plan.id, text)

    async def _add(self, pull: int, made: Comment) -> None:
        """Once, whatever the network says: after an answer that never came, it may be there all the same."""
        try:
            there = await self.forge.add_remark(pull, made.text)
        except DriverError as error:
            if error.kind is not Failure.AMBIGUOUS:
                raise
            found = [remark for remark in await self.forge.remarks(pull) if remark.text.strip() == made.text.strip()]
            there = found[0] if found else await self.forge.add_remark(pull, made.text)
        self.told(f"posted {there.url}")

    async def issue(self, made: Comment, *, clean: bool) -> None:
        """One issue while there is drift; closed when there is none."""
        own = [issue for issue in await self.forge.open_issues() if _key(issue) == made.key]
        for issue in own:
            await self.forge.edit_issue(issue.id, made.title, made.text, close=clean)
            self.told(f"{'closed' if clean else 'edited'} {issue.url}")
        if own or clean:
            return
        try:
            there = await self.forge.add_issue(made.title, made.text)
        except DriverError as error:
            if error.kind is not Failure.AMBIGUOUS:
                raise
            found = [issue for issue in await self.forge.open_issues() if _key(issue) == made.key]
            there = found[0] if found else await self.forge.add_issue(made.title, made.text)
        self.told(f"opened {there.url}")

    async def every_pull(self, report: DriftReport, touched: Callable[[Sequence[str]], Collection[str]]) -> None:
        """Drift of what an open pull request is about: its reviewers must know that the ground has moved.

        One that can't be told, since its conversation is locked, keeps none of the others from hearing of it. The error
        of the first such in the end.
        """
        failed: list[DriverError] = []
        for pull in await self.forge.open_pulls():
            nodes = touched(await self.forge.files(pull.number))
            if not nodes:
                continue
            part = narrowed(report, nodes)
            desk = replace(self, place=replace(self.place, head=pull.head))
            try:
                await desk.sticky(pull.number, comment(part, desk.place), quiet=is_clean(part))
            except DriverError as error:
                self.told(f"#{pull.number}: {error}")
                failed.append(error)
        if failed:
            raise failed[0]

    async def check(self, commit: str, made: Comment, *, offline: bool = False) -> None:
        """`offline`: what a fork is told never stands for what is found of the nodes for a branch of ours."""
        kind, _, _ = made.key.partition("/")
        name = f"reconciler/{kind}" + (f" ({self.place.environment})" if self.place.environment else "")
        pulls = await self.forge.open_pulls() if offline else ()
        ours = [pull.number for pull in pulls if pull.head == commit and not pull.fork]
        if ours:
            self.told(f"{name} of {commit[:12]}: left to #{ours[0]}, which is planned on the nodes")
            return
        text = made.text.partition("\n")[2]
        await self.forge.set_check(commit, name, CHECKS[made.verdict], made.title, text, self.place.run_url)
        self.told(f"{name} of {commit[:12]}: {CHECKS[made.verdict]}")


def _key(remark: Remark) -> object:
    return mark_of(remark.text).get("key")


def narrowed(report: DriftReport, nodes: Collection[str]) -> DriftReport:
    """What of it is about these nodes."""
    items = tuple(item for item in report.items if item.node in nodes)
    return replace(
        report,
        items=items,
        incomplete=tuple(name for name in report.incomplete if name in nodes),
        changes=any(item.kind in TOLD for item in items),
        scope=replace(report.scope, selected=min(len(nodes), report.scope.selected)),
    )


def is_clean(report: DriftReport) -> bool:
    """Every node was read, and is as specified: what is unknown is not clean."""
    return not report.changes and not report.incomplete


def says_nothing(document: Plan | DriftReport | ApplyOutcome) -> bool:
    """Whether there is nothing in it that a reviewer has to read (conventions R9)."""
    match document:
        case Plan():
            bad = comment(document, Place()).verdict is not Verdict.GOOD
            return not bad and (document.change.empty if document.change is not None else not document.changes)
        case DriftReport():
            return is_clean(document)
        case ApplyOutcome():
            return not document.actions and comment(document, Place()).verdict is Verdict.GOOD
