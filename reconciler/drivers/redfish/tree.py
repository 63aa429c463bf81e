"""URIs and capabilities of one BMC, which are learned once and kept. Values are read each time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TypeVar

from reconciler.drivers.redfish.failures import HttpError
from reconciler.drivers.redfish.fields import (
    Document,
    Gaps,
    Unknown,
    boolean,
    last_segment,
    link,
    links,
    member,
    need_link,
    path,
    quote,
    text,
)
from reconciler.drivers.redfish.quirks import Quirks, Table, quirks_of
from reconciler.drivers.redfish.session import ROOT, Resource, Session
from reconciler.model.abilities import Ability, BiosLimit
from reconciler.model.errors import DriverError, Failure

T = TypeVar("T")
Enough = Callable[[Mapping[str, Document]], bool]

_MOST_PAGES = 40
_NEXT = "Members@odata.nextLink"


class Tree:
    """The resources of one BMC."""

    def __init__(self, session: Session, table: Table) -> None:
        self.session = session
        self._table = table
        self._behaviours: Quirks | None = None  # as found last
        self._firmware: tuple[str | None] | None = None  # the manager's version, once it was read
        self._system: str | None = None
        self._tasks: str | None = None
        self._bios_settings: dict[str, str] = {}  # Bios -> its settings object
        self._kept: dict[str, Resource | DriverError] | None = None  # of a snapshot that is being read
        self._plain: set[str] = set()  # collections where $expand failed
        self.bios_limits: dict[str, Mapping[str, BiosLimit]] = {}  # by registry
        self.able: set[Ability] = set()  # seen once; what a BMC lacks is looked for again

    # --- resources -----------------------------------------------------------------------------------------------

    def get(self, where: str) -> Resource:
        if self._kept is None:
            return self.session.get(where)
        if where not in self._kept:
            try:
                self._kept[where] = self.session.get(where)
            except DriverError as error:
                self._kept[where] = error
                raise
        found = self._kept[where]
        if isinstance(found, DriverError):
            raise found
        return found

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read each resource once within: the parts of an inventory share some of them (A12)."""
        self._kept = {}
        try:
            yield
        finally:
            self._kept = None

    def follow(self, document: Document, name: str) -> Resource:
        """Read the resource behind a link. Unknown where there is no such link."""
        return self.get(need_link(document, name))

    def system(self) -> Resource:
        """Read the system that runs the host. Boards such as HGX list their baseboard as another system."""
        if self._system is not None:
            try:
                return self.get(self._system)
            except HttpError as error:
                if error.status != 404:
                    raise
                self.forget()  # other firmware, other URIs
        found: list[Resource] = []
        broken: HttpError | None = None
        for where in self._systems():
            try:
                found.append(self.get(where))
            except HttpError as error:
                broken = error
        best = max(found, key=lambda resource: _host_like(resource.body), default=None)
        if broken is not None and (best is None or action(best.body, "#ComputerSystem.Reset") is None):
            raise broken  # the host's system may be the one that can't be read now
        assert best is not None
        self._system = best.path
        return best

    def _systems(self) -> tuple[str, ...]:
        root = self.session.root()
        where = link(root, "Systems")
        if where is None:
            raise DriverError(Failure.MALFORMED, f"GET {ROOT}: the BMC offers no Systems; is this a Redfish service?")
        collection = self.get(where).body
        uris = links(collection, "Members")
        if not uris:
            raise DriverError(Failure.MALFORMED, f"GET {where}: the BMC lists no system")
        return uris

    def boards(self, host: Document) -> tuple[Resource, ...]:
        """Read the systems beside the host's, such as the baseboard of its GPUs."""
        return tuple(self.get(where) for where in self._systems() if last_segment(where) != text(host, "Id"))

    def manager(self, system: Document) -> Resource:
        """Read the BMC's own manager: the system's, else the first that is listed."""
        return self.get(self.managers(system)[0])

    def managers(self, system: Document) -> tuple[str, ...]:
        linked = links(member(system, "Links"), "ManagedBy")
        if linked:
            return linked
        listed = links(self.follow(self.session.root(), "Managers").body, "Members")
        if not listed:
            raise Unknown("the BMC lists no manager")
        return listed

    def tasks(self) -> tuple[str, list[tuple[str, Document]]]:
        """Return the URI of the collection of tasks, and its members."""
        where = self._tasks or need_link(self.follow(self.session.root(), "Tasks").body, "Tasks")
        self._tasks = None  # looked up again if the collection is gone
        listed = self.listed(where)
        self._tasks = where
        return where, listed

    def bios_settings(self, system: Document) -> Resource | None:
        """Read the object that holds pending BIOS attributes; None where a BIOS has none and applies them at once."""
        bios = need_link(system, "Bios")
        where = self._bios_settings.pop(bios, None) or settings_link(self.get(bios).body)
        if where is None:
            return None
        found = self.get(where)
        self._bios_settings[bios] = where
        return found

    def quirks(self, system: Document) -> Quirks | None:
        """Return the quirks of this system; None where nothing says who made it."""

        def firmware() -> str | None:
            if self._firmware is None:
                self._firmware = (self._manager_firmware(system),)
            return self._firmware[0]

        found = quirks_of(system, self.session.root(), table=self._table, firmware=firmware)
        self._behaviours = found or self._table.standard
        self.session.wire.gaps.set(self._behaviours.read_gap, self._behaviours.write_gap)
        return found

    def behaviours(self, system: Document | None = None) -> Quirks:
        """Return the quirks, those of the standard for an unknown make; without a document, as found last."""
        if system is not None or self._behaviours is None:
            self.quirks(self.system().body if system is None else system)
        assert self._behaviours is not None
        return self._behaviours

    def _manager_firmware(self, system: Document) -> str | None:
        try:
            return text(self.manager(system).body, "FirmwareVersion")
        except (HttpError, Unknown):
            return None

    def forget(self) -> None:
        self._system = self._tasks = self._behaviours = self._firmware = None
        for learned in (self._bios_settings, self._plain, self.bios_limits, self.able):
            learned.clear()

    # --- collections ---------------------------------------------------------------------------------------------

    def members(self, where: str) -> tuple[Resource, ...]:
        """Return all members with their content, as listed, expanded by the BMC, or read one by one.

        Raises when one member can't be read: a list without it would be wrong.
        """
        listed = self.expanded(where)
        return tuple(Resource(uri, item) if is_content(item) else self.get(uri) for uri, item in listed)

    def listed(self, where: str) -> list[tuple[str, Document]]:
        """Return members as the collection lists them, mostly links only."""
        return self._pages(where)

    def expands(self, where: str) -> bool:
        return bool(self._expand_query()) and where not in self._plain

    def expanded(self, where: str, *, enough: Enough | None = None) -> list[tuple[str, Document]]:
        """Return members with their content where the BMC can expand them, else as listed.

        `enough`: says after each page whether the members so far suffice.
        """
        if self.expands(where):
            try:
                return self._pages(f"{where}?{self._expand_query()}", enough)
            except HttpError as error:
                if error.kind in (Failure.AUTH, Failure.BUSY):
                    raise
                self._plain.add(where)  # it advertises the query and fails
        return self._pages(where, enough)

    def _expand_query(self) -> str:
        expand = member(member(self.session.root(), "ProtocolFeaturesSupported"), "ExpandQuery")
        if boolean(expand, "NoLinks"):
            return "$expand=.($levels=1)" if boolean(expand, "Levels") else "$expand=."
        return "$expand=*" if boolean(expand, "ExpandAll") else ""

    def _pages(self, where: str, enough: Enough | None = None) -> list[tuple[str, Document]]:
        found: dict[str, Document] = {}
        page = where
        for _ in range(_MOST_PAGES):
            body = self.get(page).body
            listed = body.get("Members")
            if not isinstance(listed, list):
                raise Unknown(f"{where} has no Members")
            before = len(found)
            for item in listed:
                uri = path(item.get("@odata.id")) if isinstance(item, dict) else None
                if uri is None:
                    raise Unknown(f"{where} has a member without @odata.id")
                found[uri] = item
            if _NEXT not in body or (enough is not None and enough(found)):
                return list(found.items())
            following = path(body[_NEXT])
            if following is None:
                raise Unknown(f"{where} names a next page that is no path: {quote(repr(body[_NEXT]))}")
            if len(found) == before:
                raise Unknown(f"{where} names {quote(following)} as its next page, which lists nothing new")
            page = following
        raise Unknown(f"{where} has more than {_MOST_PAGES} pages")


def settings_link(document: Document) -> str | None:
    """Return the URI of the object where changes of a resource wait; None where it takes changes itself, at once."""
    return link(member(document, "@Redfish.Settings"), "SettingsObject")


def action(document: Document, name: str) -> tuple[str, Document] | None:
    """Return target and description of an action, OEM or not; None where the BMC does not offer it."""
    actions = member(document, "Actions")
    for holder in (actions, member(actions, "Oem")):
        found = member(holder, name)
        target = path(found.get("target"))
        if target is not None:
            return target, found
    return None


def _host_like(system: Document) -> int:
    marks = ("Bios", "Boot", "BiosVersion", "SecureBoot", "BootProgress")
    return sum(name in system for name in marks) + 2 * (action(system, "#ComputerSystem.Reset") is not None)


def is_content(item: Document) -> bool:
    """Say whether a member is more than a link: every resource must have an Id."""
    return text(item, "Id") is not None


def numbers(uri: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d{1,18}", last_segment(uri)))


def is_newest_first(listed: Iterable[str]) -> bool:
    """Say by its ids whether a list of two members or more begins with the newest."""
    first, *_, last = map(numbers, listed)
    return first > last


class Survey(Gaps):
    """Reads the parts of a snapshot. An error of one resource costs that part; an error of the BMC is raised."""

    def __init__(self) -> None:
        super().__init__()
        self._hung: list[DriverError] = []  # when a second resource hangs, the BMC hangs

    def read(self, name: str, reader: Callable[[], T]) -> T | None:
        try:
            return super().read(name, reader)
        except DriverError as error:
            hangs = error.kind is Failure.TIMEOUT and not isinstance(error, HttpError)
            if hangs and error not in self._hung:
                self._hung.append(error)
            if not (error.kind is Failure.MALFORMED or _of_resource(error) or (hangs and len(self._hung) == 1)):
                raise
            self.unknown[name] = error.detail
            return None


def _of_resource(error: DriverError) -> bool:
    """Say whether the error is about one resource. A 401 is about the session."""
    return isinstance(error, HttpError) and error.status != HTTPStatus.UNAUTHORIZED
