"""Publishing of reports on a forge: comments, issues and the status of a commit (conventions R, D11)."""

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
    """Posts comments, issues and checks of one run. `say` gets a sentence for each thing that was done.

    `new_comment`: for a new commit, post a new comment and collapse the old one (conventions R2).
    """

    forge: Forge
    place: Place
    say: Callable[[str], None]
    new_comment: bool = False

    async def sticky(self, pull: int, made: Comment, *, quiet: bool = False) -> None:
        """Post a comment, or edit the one with the same key. `quiet`: edit only, and post nothing new."""
        own = [remark for remark in await self.forge.remarks(pull) if _key(remark) == made.key]
        if own and await self._outdated(pull, own[-1]):
            self.say(f"#{pull}: unchanged, since the report of a newer commit is there")
        elif own and self.new_comment and mark_of(own[-1].text).get("head") != self.place.head:
            await self._add(pull, made)
            await self._hide(own[-1])
        elif own:
            await self.forge.edit_remark(own[-1], made.text)
            self.say(f"edited {own[-1].url}")
        elif quiet:
            self.say(f"#{pull}: nothing to report, and no comment to correct")
        else:
            await self._add(pull, made)

    async def _hide(self, remark: Remark) -> None:
        """Collapse a comment. A failure is only reported, since the new report is posted by now."""
        try:
            await self.forge.hide_remark(remark)
        except DriverError as error:
            self.say(f"{remark.url} could not be collapsed: {error}")

    async def _outdated(self, pull: int, there: Remark) -> bool:
        """Return whether the pull request has a newer commit, whose report is there already."""
        of = mark_of(there.text).get("head")
        return bool(self.place.head) and of != self.place.head and of == (await self.forge.pull(pull)).head

    async def applied(self, pull: int, made: Comment) -> None:
        """Post the outcome of an apply as a comment that is never edited, and note it in the comment of the plan."""
        before = await self.forge.remarks(pull)
        if any(_key(remark) == made.key and remark.text == made.text for remark in before):
            self.say(f"#{pull}: this has been reported already")
        else:
            await self._add(pull, made)
        key = made.key.replace(Kind.APPLY, Kind.PLAN, 1)
        for plan in [remark for remark in before if _key(remark) == key][-1:]:
            text = with_status(plan.text, status_line(made, self.place))
            if text != plan.text:
                await self.forge.edit_remark(plan, text)

    async def _add(self, pull: int, made: Comment) -> None:
        there = await add_once(self.forge, pull, made.text)
        self.say(f"posted {there.url}")

    async def issue(self, made: Comment, *, clean: bool) -> None:
        """Open or edit the issue while there is drift, and close it when there is none (`clean`)."""
        own = [issue for issue in await self.forge.open_issues() if _key(issue) == made.key]
        for issue in own:
            await self.forge.edit_issue(issue.id, made.title, made.text, close=clean)
            self.say(f"{'closed' if clean else 'edited'} {issue.url}")
        if own or clean:
            return
        try:
            there = await self.forge.add_issue(made.title, made.text)
        except DriverError as error:
            if error.kind is not Failure.AMBIGUOUS:
                raise
            found = [issue for issue in await self.forge.open_issues() if _key(issue) == made.key]
            there = found[0] if found else await self.forge.add_issue(made.title, made.text)
        self.say(f"opened {there.url}")

    async def every_pull(self, report: DriftReport, touched: Callable[[Sequence[str]], Collection[str]]) -> None:
        """Comment on each open pull request that touches a node with drift, so that its reviewers know.

        A pull request that can't be commented on, since its conversation is locked, does not stop the others. The first
        such error is raised in the end.
        """
        failed: list[DriverError] = []
        for pull in await self.forge.open_pulls():
            nodes = touched(await self.forge.files(pull.number))
            if not nodes:
                continue
            part = narrowed(report, nodes)
            publisher = replace(self, place=replace(self.place, head=pull.head))
            try:
                await publisher.sticky(pull.number, comment(part, publisher.place), quiet=is_clean(part))
            except DriverError as error:
                self.say(f"#{pull.number}: {error}")
                failed.append(error)
        if failed:
            raise failed[0]

    async def check(self, commit: str, made: Comment, *, offline: bool = False) -> None:
        """Set the status of a commit. An `offline` result never replaces that of the nodes, for a branch of our own."""
        kind, _, _ = made.key.partition("/")
        name = f"reconciler/{kind}" + (f" ({self.place.environment})" if self.place.environment else "")
        pulls = await self.forge.open_pulls() if offline else ()
        ours = [pull.number for pull in pulls if pull.head == commit and not pull.fork]
        if ours:
            self.say(f"{name} of {commit[:12]}: not set, since #{ours[0]} is planned on the nodes")
            return
        text = made.text.partition("\n")[2]
        await self.forge.set_check(commit, name, CHECKS[made.verdict], made.title, text, self.place.run_url)
        self.say(f"{name} of {commit[:12]}: {CHECKS[made.verdict]}")


async def add_once(forge: Forge, pull: int, text: str) -> Remark:
    """Post a comment once. After a request without an answer, look for it first: it may have arrived."""
    try:
        return await forge.add_remark(pull, text)
    except DriverError as error:
        if error.kind is not Failure.AMBIGUOUS:
            raise
        found = [remark for remark in await forge.remarks(pull) if remark.text.strip() == text.strip()]
        return found[0] if found else await forge.add_remark(pull, text)


def _key(remark: Remark) -> object:
    return mark_of(remark.text).get("key")


def narrowed(report: DriftReport, nodes: Collection[str]) -> DriftReport:
    """Return the part of the report about these nodes."""
    items = tuple(item for item in report.items if item.node in nodes)
    return replace(
        report,
        items=items,
        incomplete=tuple(name for name in report.incomplete if name in nodes),
        changes=any(item.kind in TOLD for item in items),
        scope=replace(report.scope, selected=min(len(nodes), report.scope.selected)),
    )


def is_clean(report: DriftReport) -> bool:
    """Return whether every node was read and is as specified."""
    return not report.changes and not report.incomplete and not report.unknown


def says_nothing(document: Plan | DriftReport | ApplyOutcome) -> bool:
    """Return whether a reviewer has nothing to read in it (conventions R9)."""
    match document:
        case Plan():
            bad = comment(document, Place()).verdict is not Verdict.GOOD
            return not bad and (document.change.empty if document.change is not None else not document.changes)
        case DriftReport():
            return is_clean(document)
        case ApplyOutcome():
            return not document.actions and comment(document, Place()).verdict is Verdict.GOOD
