"""Start firmware updates, and read tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from reconciler.drivers.redfish import devices, tasks
from reconciler.drivers.redfish.failures import HttpError
from reconciler.drivers.redfish.fields import (
    Document,
    Unknown,
    boolean,
    integer,
    last_segment,
    member,
    need_link,
    path,
    text,
)
from reconciler.drivers.redfish.power import parameters, values
from reconciler.drivers.redfish.quirks import Operation, Quirks
from reconciler.drivers.redfish.session import Reply, Resource
from reconciler.drivers.redfish.tree import Tree, action
from reconciler.drivers.redfish.upload import Upload, multipart
from reconciler.model.abilities import FETCHES, ONLY_SENT
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import BmcTask
from reconciler.model.ports import FirmwareFile

_UPDATE = f"#UpdateService.{FETCHES}"
WAYS = (FETCHES, "MultipartHttpPushUri", "HttpPushUri")
_FORM = ("Targets", "TransferProtocol", "OperationApplyTime")  # parameters that some BMCs refuse
_NAME = re.compile(r"[\w.-]{1,128}", re.ASCII)


def start_update(tree: Tree, inventory_id: str, file: FirmwareFile) -> str:
    """Start an update; return its task's URI. AMBIGUOUS where the BMC names no task: the version will tell.

    The BMC fetches the file by SimpleUpdate where that can name the component. Else it is sent the file: OpenBMC of
    NVIDIA has no SimpleUpdate, and that of AMI on DGX takes no Targets.
    """
    service = update_service(tree)
    start = _way(tree, service, file)
    target = _target(tree, need_link(service.body, "FirmwareInventory"), inventory_id)
    reply = start(target)
    uri = tasks.task_of_reply(reply.body, reply.location)
    if uri is None:
        raise DriverError(Failure.AMBIGUOUS, f"the BMC took the update of {inventory_id} but names no task for it")
    return uri


def update_service(tree: Tree) -> Resource:
    """Read the update service. Unknown where it is disabled, or offers no way to bring in firmware."""
    service = tree.follow(tree.session.root(), "UpdateService")
    if boolean(service.body, "ServiceEnabled") is False:
        raise Unknown("the BMC's update service is disabled: enable it (F6)")
    if not _ways(service.body):
        raise Unknown(f"the BMC offers no {', '.join(WAYS)}: it may need a licence (F6)")
    return service


def ways(tree: Tree) -> tuple[str, ...]:
    """Return all ways that the BMC offers to bring in firmware, of `WAYS`."""
    return _ways(tree.follow(tree.session.root(), "UpdateService").body)


def _ways(service: Document) -> tuple[str, ...]:
    return tuple(
        way for way in WAYS if (action(service, _UPDATE) if way == FETCHES else path(service.get(way))) is not None
    )


def _way(tree: Tree, service: Resource, file: FirmwareFile) -> Callable[[str], Reply]:
    """Return how this BMC is updated, as a function of the component's URI."""
    offered = action(service.body, _UPDATE)
    form, raw = path(service.body.get("MultipartHttpPushUri")), path(service.body.get("HttpPushUri"))
    if offered is not None:
        described = parameters(tree, offered[1])
        if form is None or file.path is None or described is None or "Targets" in described:
            return lambda target: _simple(tree, offered, described, target, file.url)
    if file.path is None:
        raise Unknown(ONLY_SENT)
    most, copy = integer(service.body, "MaxImageSizeBytes"), Path(file.path)
    if most and file.size > most:
        raise DriverError(Failure.REJECTED, f"the file has {file.size} bytes, the BMC takes {most}")
    if form is not None:
        return lambda target: _form(tree, form, target, file.url, copy)
    assert raw is not None
    return lambda target: _raw(tree, service, raw, target, copy)


def _simple(
    tree: Tree, offered: tuple[str, Document], described: Mapping[str, Document] | None, target: str, url: str
) -> Reply:
    """Let the BMC fetch the file."""
    scheme = url.split(":", 1)[0].upper()
    plain = {"ImageURI": url}
    protocols = values(offered[1], "TransferProtocol", described)
    targets = values(offered[1], "Targets", described)
    # Without a target the image says what it is for: Lenovo knows none but the BMC's backup.
    full: dict[str, Any] = plain if targets and not _among(target, targets) else {**plain, "Targets": [target]}
    forms = [{**full, "TransferProtocol": scheme}] if not protocols or scheme in protocols else []
    forms += [full, {**plain, **({"TransferProtocol": scheme} if scheme in protocols else {})}]
    return _post(tree, offered[0], forms)


def _among(target: str, allowed: Sequence[str]) -> bool:
    """Say whether a target is allowed. Supermicro writes a number as "(\\d+)"."""
    return any(re.fullmatch(re.escape(one).replace(re.escape(r"(\d+)"), r"\d+"), target) for one in allowed)


def _form(tree: Tree, where: str, target: str, url: str, copy: Path) -> Reply:
    """Send the file as DSP0266 says."""
    name = last_segment(url)
    name = name if _NAME.fullmatch(name) else "firmware.bin"
    # Some apply an update at the next reset of their own unless they are told when.
    now = {"@Redfish.OperationApplyTime": "Immediate"}
    forms: list[dict[str, Any]] = [{"Targets": [target], **now}, {"Targets": [target]}, {}]
    return _post(tree, where, [multipart(copy, name, form) for form in forms])


def _raw(tree: Tree, service: Resource, where: str, target: str, copy: Path) -> Reply:
    """Send the bare file, after the component was named in the update service."""
    claim: dict[str, Any] = {}
    if "HttpPushUriTargets" in service.body:
        claim["HttpPushUriTargets"] = [target]
    if boolean(service.body, "HttpPushUriTargetsBusy") is not None:
        if boolean(service.body, "HttpPushUriTargetsBusy"):
            raise DriverError(Failure.BUSY, "somebody else prepares an update (HttpPushUriTargetsBusy)")
        claim["HttpPushUriTargetsBusy"] = True
    wanted = member(member(service.body, "HttpPushUriOptions"), "HttpPushUriApplyTime")
    change = dict(claim)
    if text(wanted, "ApplyTime") not in (None, "Immediate"):
        change["HttpPushUriOptions"] = {"HttpPushUriApplyTime": {"ApplyTime": "Immediate"}}
    if change:
        tree.session.patch(service, change, patience=_patience(tree))
    try:
        return tree.session.post(where, Upload(copy), patience=_patience(tree))
    finally:
        given_back = {"HttpPushUriTargets": [], "HttpPushUriTargetsBusy": False}
        if claim:
            with suppress(DriverError):  # the next update names its own component
                tree.session.patch(tree.get(service.path), {name: given_back[name] for name in claim})


def _post(tree: Tree, where: str, forms: Iterable[Document | Upload]) -> Reply:
    """Send the first form that the BMC takes; each is tried once."""
    refusal: HttpError | None = None
    for form in forms:
        try:
            return tree.session.post(where, form, patience=_patience(tree))
        except HttpError as error:
            if error.kind is not Failure.REJECTED or not _about_form(error):
                raise
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _patience(tree: Tree) -> float:
    return tree.behaviours().patience.get(Operation.FIRMWARE, 0.0)


def _target(tree: Tree, where: str, inventory_id: str) -> str:
    """Return the URI of the component, found by the last part of a URI, or by the quirk's firmware id (Dell)."""
    listed = [uri for uri, _ in tree.listed(where)]
    found = next((uri for uri in listed if last_segment(uri) == inventory_id), None)
    if found is not None:
        return found
    quirks = tree.quirks(tree.system().body)
    if quirks is not None and quirks.firmware_id is not None:
        found = next((uri for uri in listed if _key(uri, quirks) == inventory_id), None)
    if found is None:
        raise DriverError(Failure.REJECTED, f"GET {where}: the BMC lists no firmware {inventory_id!r}")
    return found


def _key(uri: str, quirks: Quirks) -> str | None:
    return devices.firmware_key({"Id": last_segment(uri)}, quirks)


def _about_form(error: HttpError) -> bool:
    """Say whether a parameter, not the image, is refused."""
    return any(error.mentions(word) for word in _FORM)


def read_task(tree: Tree, uri: str) -> BmcTask | None:
    try:
        found = tree.get(uri)
    except HttpError as error:
        if error.status in (404, 410):
            return None
        raise
    return tasks.task(uri, found.body, tree.behaviours())
