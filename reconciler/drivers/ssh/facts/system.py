"""Facts of the running system: names, boot, DMI, image, Secure Boot, services and sysctls."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt, find_json
from reconciler.model.gate import CommandResult
from reconciler.model.observed import ImageIdentity, Service
from reconciler.model.vocab import UnknownReason

# --- one line each -----------------------------------------------------------------------------------------------

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_UPTIME = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) \d{1,15}(?:\.\d{1,6})?")


def parse_line(answer: CommandResult) -> Parsed[str]:
    lines = answer.stdout.strip().splitlines()
    if len(lines) != 1 or not lines[0].isprintable() or " " in lines[0]:
        raise Unreadable(f"not one word: {excerpt(answer.stdout, 80)!r}")
    return Parsed(lines[0])


def parse_boot_id(answer: CommandResult) -> Parsed[str]:
    text = answer.stdout.strip()
    if _UUID.fullmatch(text) is None:
        raise Unreadable(f"not a boot id: {excerpt(text, 80)!r}")
    return Parsed(text.lower())


def parse_uptime(answer: CommandResult) -> Parsed[float]:
    match = _UPTIME.fullmatch(answer.stdout.strip())
    if match is None:
        raise Unreadable(f"not an uptime: {excerpt(answer.stdout, 80)!r}")
    return Parsed(float(match[1]))


# --- DMI ---------------------------------------------------------------------------------------------------------

# Placeholders that vendors leave on boards without an identity, the same on thousands of machines.
_PLACEHOLDER = re.compile(
    r"to be filled by o\.?e\.?m\.?|default string|system serial number|not (specified|applicable|available)|none|n/?a|"
    r"unknown|empty|invalid|0123456789|123456789|0+|x+|\.+|"
    r"(0{8}|f{8})-((0{4}|f{4})-){3}(0{12}|f{12})|03000200-0400-0500-0006-000700080009",
    re.IGNORECASE,
)


def parse_dmi(answer: CommandResult) -> Parsed[tuple[str | None, str | None]]:
    """Return serial and UUID from two lines; a file that could not be read (only root may) gives an empty line."""
    lines = answer.stdout.splitlines()
    if len(lines) != 2:
        raise Unreadable(f"not a serial and a UUID: {excerpt(answer.stdout, 80)!r}")
    serial, uuid = (_identity(line) for line in lines)
    if uuid is not None and _UUID.fullmatch(uuid) is None:
        raise Unreadable(f"not a UUID: {excerpt(uuid, 80)!r}")
    why = f"auth: {excerpt(answer.stderr)}" if answer.stderr.strip() else "unsupported: the firmware holds none"
    return Parsed((serial, uuid), {name: why for name, value in (("serial", serial), ("uuid", uuid)) if value is None})


def _identity(line: str) -> str | None:
    line = line.strip()
    return line if line and line.isprintable() and _PLACEHOLDER.fullmatch(line) is None else None


# --- image -------------------------------------------------------------------------------------------------------

IMAGE_FILE = "/etc/reconciler/image.json"
_IMAGE_KEYS = ("image", "version", "sha256", "root_disk", "nonce")


def parse_image(answer: CommandResult) -> Parsed[ImageIdentity]:
    """Return the image. A missing file means that we did not install this host; an unreadable one is an error."""
    if answer.exit_status != 0:
        if "No such file or directory" not in answer.stderr:
            raise Unreadable(f"{IMAGE_FILE} can't be read: {excerpt(answer.stderr)}", UnknownReason.AUTH)
        return Parsed(ImageIdentity(None, None, None, None, None))
    document = find_json(answer.stdout)
    if not isinstance(document, dict):
        raise Unreadable(f"{IMAGE_FILE} holds no JSON object")
    return Parsed(image_of(document))


def image_of(document: Mapping[str, Any]) -> ImageIdentity:
    """Return the image that a record of an install names."""
    values = [document.get(key) for key in _IMAGE_KEYS]
    if not all(value is None or isinstance(value, str) for value in values):
        raise Unreadable(f"{IMAGE_FILE} holds values that are not text")
    return ImageIdentity(*(value or None for value in values))


def parse_os_release(answer: CommandResult) -> Parsed[Mapping[str, str]]:
    """Parse shell assignments. Lines that are no valid assignment are left out."""
    values = {}
    for line in answer.stdout.splitlines():
        name, equals, value = line.partition("=")
        if not equals or not name.isidentifier():
            continue
        try:
            words = shlex.split(value)
        except ValueError:
            continue
        if len(words) == 1:
            values[name] = words[0]
    if "ID" not in values and "NAME" not in values:
        raise Unreadable("os-release names no system")
    return Parsed(values)


# --- Secure Boot -------------------------------------------------------------------------------------------------


def parse_secure_boot(answer: CommandResult) -> Parsed[bool]:
    """Parse mokutil --sb-state. With validation off in shim, or in Setup Mode, its first line still says "enabled"."""
    lines = {line.strip().lower() for line in answer.stdout.splitlines()}
    if "secureboot disabled" in lines:
        return Parsed(False)
    if "secureboot enabled" not in lines:
        raise Unreadable(f"mokutil gives no state: {excerpt(answer.stdout + answer.stderr)}")
    undone = {"secureboot validation is disabled in shim", "platform is in setup mode"}
    return Parsed(not lines & undone)


# --- services and sysctls ----------------------------------------------------------------------------------------

_ACTIVE = {"active": True, "reloading": True, "refreshing": True, "inactive": False, "failed": False}
# Others (static, indirect, generated, transient ...) are started by something else, and are neither.
_ENABLED = {"enabled": True, "enabled-runtime": False, "disabled": False, "masked": False, "masked-runtime": False}


def parse_services(answer: CommandResult) -> Parsed[Mapping[str, Service]]:
    """Return services under every name of their unit: an alias is answered under the unit's own Id."""
    found = {}
    for block in answer.stdout.strip().split("\n\n"):
        values = dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line)
        missing = values.get("LoadState") == "not-found"
        service = Service(
            _ACTIVE.get(values.get("ActiveState", "")),
            False if missing else _ENABLED.get(values.get("UnitFileState", "")),
        )
        for name in {values.get("Id", ""), *values.get("Names", "").split()} - {""}:
            found[name] = service
    if not found:
        raise Unreadable(f"systemctl shows no unit: {excerpt(answer.stdout, 80)!r}")
    return Parsed(found)


def asked_services(found: Mapping[str, Service], asked: Sequence[str]) -> dict[str, Service]:
    """Return services under the names that the spec uses: "kubelet" for kubelet.service."""
    named = {name: found.get(name) or found.get(f"{name}.service") for name in asked}
    return {name: service for name, service in named.items() if service is not None}


def parse_sysctls(answer: CommandResult) -> Parsed[Mapping[str, str]]:
    """Parse `key = value` lines. sysctl fails when one key is unknown, and still prints the others."""
    lines = (line.partition(" = ") for line in answer.stdout.splitlines())
    return Parsed({key.strip(): value.strip() for key, equals, value in lines if equals and key.strip()})


HOSTNAME = Fact("hostname", "cat /proc/sys/kernel/hostname", parse_line, ("hostname",))
KERNEL = Fact("kernel", "uname -r", parse_line, ("kernel",))
BOOT_ID = Fact("boot_id", "cat /proc/sys/kernel/random/boot_id", parse_boot_id, ("boot_id",))
UPTIME = Fact("uptime", "cat /proc/uptime", parse_uptime, ("uptime_s",))
DMI = Fact(
    "dmi",
    'cd /sys/class/dmi/id && echo "$(cat product_serial)" && echo "$(cat product_uuid)"',
    parse_dmi,
    ("serial", "uuid"),
)
OS_RELEASE = Fact("os_release", "cat /etc/os-release", parse_os_release, ("image.os_release",))
IMAGE = Fact("image", f"cat {IMAGE_FILE}", parse_image, ("image",), statuses=frozenset({0, 1}))
SECURE_BOOT = Fact("secure_boot", "mokutil --sb-state", parse_secure_boot, ("secure_boot",))


def services_fact(names: Sequence[str]) -> Fact[Mapping[str, Service]]:
    command = "systemctl show --no-pager -p Id,Names,LoadState,ActiveState,UnitFileState -- " + shlex.join(names)
    return Fact("services", command, parse_services, ("services",))


def sysctls_fact(names: Sequence[str]) -> Fact[Mapping[str, str]]:
    return Fact(
        "sysctls", "sysctl -- " + shlex.join(names), parse_sysctls, ("sysctls",), statuses=frozenset({0, 1, 255})
    )
