"""Decide the messages that a channel gets now: each notice is told at least once, and few messages tell of it.

One message tells of one notice. A later one follows when the notice gets worse, or ends; the pauses between them grow,
so that what flaps is not told for ever. Many notices at a time are a storm: one message tells of all, and the next one
waits longer each time. What waits, for quiet hours, a digest, a storm or a channel that is down, is told in one message
when the wait is over, also when it has ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import chain

from reconciler.model.notices import Channel, Message, NoticeEvent, Severity
from reconciler.notify.found import SEVERITY, Found, Notice
from reconciler.notify.state import ChannelState, Known
from reconciler.notify.words import of_many, of_one
from reconciler.planner.fleet.hours import cover

FEW = 3  # notices that get a message each, at a time
BURST = 5  # messages within PERIOD; more notices than that share one
PERIOD = timedelta(minutes=10)  # what is one storm, and the pause after its first message
PAUSE = timedelta(minutes=5)  # after the first message about a notice; doubled after each further one
LONGEST = timedelta(hours=4)  # pause
KEPT = timedelta(hours=1)  # how long an ended notice is remembered: one that begins again is the same
STORM_LONGEST = timedelta(hours=1)  # pause between the messages of one storm: something else may happen
_OF_NODES = (NoticeEvent.ISOLATED, NoticeEvent.REPAIR)
BACKLOG = 3  # unsent messages at which a channel gets no more: they would all be out of date


@dataclass(frozen=True, slots=True)
class Context:
    """The fleet that messages are about. `seed`: id of the ledger, so that no other fleet's keys are the same.

    `nodes`: pool and persona by node.
    """

    fleet: str
    seed: str
    nodes: Mapping[str, tuple[str, str]]


def decide(
    channel: Channel, state: ChannelState, found: Found, now: datetime, context: Context, *, backlog: int = 0
) -> tuple[ChannelState, tuple[Message, ...]]:
    """Return the state after this pass, and the messages to be sent. `backlog`: messages that wait to be sent."""
    state = _absorb(channel, _set_back(state, now) if state.seen_at > now else state, found, now, context)
    news = {key: one for key, one in state.known.items() if _is_news(channel, one) and _may_follow(one, now)}
    urgent = {key: one for key, one in news.items() if one.over_at is None and _severity(one) is Severity.CRITICAL}
    held = len(news) > len(urgent) and _is_held(channel, state, now)
    if held and state.held_since is None:
        state = replace(state, held_since=now)
    elif len(news) == len(urgent):
        state = replace(state, held_since=None)
    chosen = urgent if held else news
    if not chosen or backlog >= BACKLOG or now < state.storm_until:
        return state, ()
    recent = tuple(at for at in state.sent if now - at < PERIOD)
    collected = not held and state.held_since is not None
    storm = len(chosen) > FEW or len(recent) + len(chosen) > BURST
    state = replace(state, sent=recent, held_since=state.held_since if held else None)
    if len(chosen) > 1 and (storm or collected):
        return _tell_together(channel, state, chosen, now, context, storm=storm)
    return _tell_each(channel, state, chosen, now, context)


def _set_back(state: ChannelState, now: datetime) -> ChannelState:
    """Return the state for a clock that was set back: nothing happened later than now, and no pause lasts longer."""
    known = {
        key: replace(
            one,
            since=min(one.since, now),
            told_at=min(one.told_at, now),
            over_at=None if one.over_at is None else min(one.over_at, now),
        )
        for key, one in state.known.items()
    }
    held_since = None if state.held_since is None else min(state.held_since, now)
    sent = tuple(min(at, now) for at in state.sent)
    return replace(state, known=known, sent=sent, held_since=held_since, storm_until=min(state.storm_until, now))


# --- what the channel knows ----------------------------------------------------------------------------------------


def _absorb(channel: Channel, state: ChannelState, found: Found, now: datetime, context: Context) -> ChannelState:
    """Return the state with the notices of this pass."""
    known = dict(state.known)
    ours: set[str] = set()
    for notice in chain(found.ended.values(), found.holding.values()):
        if notice.key in found.ended and _is_told_of(known.get(notice.key), notice):
            continue
        if (mine := _selected(channel, notice, now, context)) is not None:
            known[notice.key] = _with(known.get(notice.key), mine, now)
            if notice.key in found.holding:
                ours.add(notice.key)
    for key, one in list(known.items()):
        if one.over_at is None and key not in ours:
            if key in found.holding:  # a spec that was changed tells this channel of it no more
                del known[key]
            elif not found.blind and key not in found.unclear and not _is_unread(one, found):
                known[key] = replace(one, over_at=now, told_over=one.event is NoticeEvent.WINDOW and one.told > 0)
        elif one.over_at is not None and now - one.over_at > KEPT and not _is_news(channel, one):
            del known[key]
    return replace(state, seen_at=now, known=known)


def _is_told_of(one: Known | None, ended: Notice) -> bool:
    """Return whether the journal tells of what is known already."""
    return one is not None and (one.over_at is None or ended.begun is None or one.over_at >= ended.begun)


def _is_unread(one: Known, found: Found) -> bool:
    """Return whether an incident may go on where nobody sees it: unknown is not healed."""
    return one.event is NoticeEvent.INCIDENT and not found.unread.isdisjoint(one.nodes)


def _selected(channel: Channel, notice: Notice, now: datetime, context: Context) -> Notice | None:
    """Return the notice with the nodes that this channel is told of; None when it is told of none of them."""
    if notice.begins is not None and notice.begins - now > timedelta(seconds=channel.ahead_s):
        return None
    if channel.pools and notice.pool and notice.pool not in channel.pools:
        return None
    if not notice.nodes or not (channel.pools or channel.personas):
        return notice
    nodes = tuple(name for name in notice.nodes if _takes(channel, notice, name, context))
    return replace(notice, nodes=nodes) if nodes else None


def _takes(channel: Channel, notice: Notice, node: str, context: Context) -> bool:
    pool, persona = context.nodes.get(node, (notice.pool, ""))
    return (not channel.pools or pool in channel.pools) and (not channel.personas or persona in channel.personas)


def _with(one: Known | None, notice: Notice, now: datetime) -> Known:
    """Return what is known of a notice, which holds now."""
    rank = rank_of(notice)
    fresh = Known(notice.event, notice.subject, notice.reason, notice.detail, notice.nodes, notice.begun or now, rank)
    if one is None:
        return fresh
    if one.over_at is not None and one.told_over and notice.event is not NoticeEvent.WINDOW:
        return replace(fresh, weight=one.weight, told_at=one.told_at, times=one.times)  # news, once its pause is over
    if rank < one.rank and (one.told < one.rank or notice.event not in _OF_NODES):  # not as bad as it is still to tell
        return replace(one, over_at=None)
    return replace(
        one,
        event=notice.event,
        reason=notice.reason,
        detail=notice.detail,
        nodes=notice.nodes,
        rank=rank,
        told=min(one.told, rank),  # a node that needs a repair again is news again
        over_at=None,
    )


def rank_of(notice: Notice) -> int:
    """Return how far a notice has come: a greater rank is news. Of many nodes, twice as many are."""
    if notice.event in _OF_NODES:
        return 1 if notice.event is NoticeEvent.ISOLATED else 2
    return max(1, len(notice.nodes).bit_length()) if notice.event is not NoticeEvent.WINDOW else 1


# --- what is to be told, and when ----------------------------------------------------------------------------------


def _is_news(channel: Channel, one: Known) -> bool:
    """Return whether there is something of a notice that the channel wants to be told and was not."""
    wanted = one.event in channel.events and _severity(one).rank >= channel.severity.rank
    if one.rank > one.told and wanted:
        return True
    return one.over_at is not None and one.told > 0 and not one.told_over and NoticeEvent.DONE in channel.events


def _may_follow(one: Known, now: datetime) -> bool:
    """Return whether the pause since the last message about this notice is over. What is worse than told waits not."""
    worse = one.over_at is None and one.weight is not None and _severity(one).rank > one.weight.rank
    if not one.times or worse:
        return True
    return now >= one.told_at + _doubled(PAUSE, one.times, LONGEST)


def _doubled(pause: timedelta, times: int, longest: timedelta) -> timedelta:
    """Return the pause after the nth time."""
    return min(pause * (1 << min(times - 1, 10)), longest)


def _severity(one: Known) -> Severity:
    return SEVERITY[one.event]


def _is_held(channel: Channel, state: ChannelState, now: datetime) -> bool:
    """Return whether what is not critical waits now."""
    if any(cover(hours, now) for hours in channel.quiet):
        return True
    return bool(channel.digest_s) and (now - (state.held_since or now)).total_seconds() < channel.digest_s


# --- messages ------------------------------------------------------------------------------------------------------


def _tell_each(
    channel: Channel, state: ChannelState, chosen: Mapping[str, Known], now: datetime, context: Context
) -> tuple[ChannelState, tuple[Message, ...]]:
    messages: list[Message] = []
    for key, one in sorted(chosen.items()):
        title, body = of_one(context.fleet, one)
        thread = _digest(context.seed, channel.name, key)
        number = state.number + len(messages) + 1
        over = one.over_at is not None
        severity = Severity.INFO if over else _severity(one)
        key_ = _key(channel, number, now, context)
        messages.append(Message(key_, channel.name, thread, severity, over, title, body, (key,)))
    return _told(state, chosen, now, len(messages)), tuple(messages)


def _tell_together(
    channel: Channel, state: ChannelState, chosen: Mapping[str, Known], now: datetime, context: Context, *, storm: bool
) -> tuple[ChannelState, tuple[Message, ...]]:
    """Make one message. In a storm, the next one waits twice as long as this one did."""
    if storm:
        goes_on = state.storms > 0 and now < state.storm_until + PERIOD
        storms = state.storms + 1 if goes_on else 1
        until = now + _doubled(PERIOD, storms, STORM_LONGEST)
        state = replace(state, storms=storms, storm_until=until, storm_since=state.storm_since if goes_on else now)
    since = state.storm_since if storm else now
    title, body = of_many(context.fleet, list(_ordered(chosen)), now)
    thread = _digest(context.seed, channel.name, "many", since.isoformat())
    over = all(one.over_at is not None for one in chosen.values())
    severities = [Severity.INFO if one.over_at is not None else _severity(one) for one in chosen.values()]
    worst = max(severities, key=lambda severity: severity.rank)
    key = _key(channel, state.number + 1, now, context)
    message = Message(key, channel.name, thread, worst, over, title, body, tuple(sorted(chosen)))
    return _told(state, chosen, now, 1), (message,)


def _ordered(chosen: Mapping[str, Known]) -> Iterator[Known]:
    """Yield the worst first, and then by key."""
    by_key = [one for _, one in sorted(chosen.items())]
    yield from sorted(by_key, key=lambda one: (one.over_at is not None, -_severity(one).rank))


def _told(state: ChannelState, chosen: Mapping[str, Known], now: datetime, messages: int) -> ChannelState:
    told = {
        key: replace(
            one,
            told=one.rank,
            told_over=one.over_at is not None,
            weight=max(one.weight or Severity.INFO, _severity(one), key=lambda severity: severity.rank),
            told_at=now,
            times=one.times + 1,
        )
        for key, one in chosen.items()
    }
    return replace(
        state, known={**state.known, **told}, sent=(*state.sent, *[now] * messages), number=state.number + messages
    )


def _key(channel: Channel, number: int, now: datetime, context: Context) -> str:
    """Return a key that no other message has, also if the numbers of a channel begin again."""
    return _digest(context.seed, channel.name, str(number), now.isoformat())


def _digest(*parts: str) -> str:
    return sha256("\n".join(parts).encode()).hexdigest()[:32]
