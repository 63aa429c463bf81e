"""The programs that tell a lab machine how to serve, copy what it needs for that, and ask whether it serves.

As on a host, a command that was told under a name is not run again under it. What a machine serves is nobody's concern
here; of its data, regular files are modelled, and the digests of container images.
"""

from __future__ import annotations

import hashlib

from reconciler.lab.hardware.tools.call import Call, Ran, done, failed
from reconciler.model.container_images import (
    EXPORT,
    HOME,
    LACKING,
    LIST,
    LOAD,
    RELOAD,
    ROOM,
    ContainerImage,
    read_listed,
)
from reconciler.model.k3s import K3sRole
from reconciler.model.serving import TELL, probe_of
from reconciler.model.serving_sync import DIGESTS, PULL

SECONDS = 5.0
COPY_S = 60.0


def serving_script(call: Call) -> Ran | None:
    """Run one of the programs, as `sh -c PROGRAM sh ...`; None for any other."""
    match call.args:
        case ("-c", program, "sh", name, _, *argv) if program == TELL:
            state = call.machine.state.serving
            if name not in state.told:
                state.commands.append(tuple(argv))
                state.told[name] = state.fails
            return failed(state.told[name], "the engine refuses\n" if state.told[name] else "", seconds=SECONDS)
        case ("-c", program, "sh", address, *paths) if program == PULL:
            return _pull(call, address, paths)
        case ("-c", program, "sh", *paths) if program == DIGESTS:
            return _digests(call, paths)
        case ("-c", program, "sh", *words) if program in _OF_IMAGES:
            return _OF_IMAGES[program](call, words)
    return None


def _list(call: Call, names: list[str]) -> Ran:
    have = call.machine.disk().container_images
    missing = [name for name in names if name not in have]
    if missing:
        return failed(1, f"no runtime has all images whole; containerd has not: {' '.join(missing)}\n")
    images = (
        ContainerImage(have[name], name, f"{HOME}/{hashlib.sha256(name.encode()).hexdigest()}.tar") for name in names
    )
    return done("containerd\n" + "".join(f"{image}\n" for image in images))


def _images(call: Call, words: list[str]) -> tuple[ContainerImage, ...]:
    listed = read_listed(f"{words[0]}\n{call.stdin}")
    return () if listed is None else listed.images


def _lacking(call: Call, words: list[str]) -> Ran:
    have, lines = call.machine.disk().container_images, ""
    for image in _images(call, words):
        if have.get(image.name, image.digest) != image.digest:
            return failed(1, f"{image.name} is {have[image.name]} here, and {image.digest} there\n")
        lines += "" if image.name in have else f"{image}\n"
    return done(lines)


def _export(call: Call, words: list[str]) -> Ran:
    archives = {image.archive: image.digest for image in _images(call, words)}
    call.machine.disk().files |= {f"{HOME}/list": f"{words[0]}\n{call.stdin}"} | archives
    return done("".join(f"{len(digest)} {path}\n" for path, digest in archives.items()), seconds=COPY_S)


def _load(call: Call, words: list[str]) -> Ran:
    disk = call.machine.disk()
    for image in _images(call, words):
        if image.archive not in disk.files:
            return failed(1, f"open {image.archive}: no such file or directory\n")
        disk.container_images[image.name] = disk.files.pop(image.archive)
    return done(seconds=COPY_S)


def _reload(call: Call, _: list[str]) -> Ran:
    """Load what was restored."""
    machine, disk = call.machine, call.machine.disk()
    if f"{HOME}/list" not in disk.files:
        return done()
    if machine.k3s is not None and not any(machine.system().services_active.get(role.unit) for role in K3sRole):
        del disk.files[f"{HOME}/list"]
        return done("all: containerd does not run\n", seconds=COPY_S)
    listed = read_listed(disk.files[f"{HOME}/list"])
    for image in () if listed is None else listed.images:
        disk.container_images.setdefault(image.name, disk.files[image.archive])
    for path in _within(disk.files, [HOME]):
        del disk.files[path]
    return done(seconds=COPY_S)


_OF_IMAGES = {LIST: _list, LACKING: _lacking, EXPORT: _export, LOAD: _load, RELOAD: _reload, ROOM: lambda *_: done()}


def probe(call: Call) -> Ran | None:
    """Ask a URL of what the machine serves, as the reconciler's probe does; None for any other request."""
    if (call.name, *call.args) != probe_of(call.args[-1]):
        return None
    if not call.machine.state.serving.answers:
        return failed(0, stdout="503")
    return done("200")


def _within(files: dict[str, str], paths: list[str]) -> dict[str, str]:
    return {name: text for name, text in files.items() if any(f"{name}/".startswith(f"{path}/") for path in paths)}


def _pull(call: Call, address: str, paths: list[str]) -> Ran:
    source = call.machine.copied_from.get(address)
    if source is None or source.ssh_transport() is not None:
        return failed(255, f"ssh: connect to host {address} port 22: No route to host\n")
    have = call.machine.disk().files
    lacking = {name: text for name, text in _within(source.disk().files, paths).items() if name not in have}
    have |= lacking
    size = sum(len(text) for text in lacking.values())
    return done(f"copied {size} bytes in {COPY_S * 1000:.0f} ms\n", seconds=COPY_S)


def _digests(call: Call, paths: list[str]) -> Ran:
    files = call.machine.disk().files
    for path in paths:
        if not _within(files, [path]):
            return failed(1, f"{path} is not there: mount it, or take it out of sync\n")
    lines = (f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in _within(files, paths).items())
    return done("".join(sorted(lines)))


def compare(call: Call) -> Ran:
    """Run `sha256sum --check --quiet`: name each file of its standard input that is another one here, or none."""
    files, wrong = call.machine.disk().files, ""
    for line in call.stdin.splitlines():
        digest, _, name = line.partition("  ")
        if name not in files:
            wrong += f"{name}: FAILED open or read\n"
        elif hashlib.sha256(files[name].encode()).hexdigest() != digest:
            wrong += f"{name}: FAILED\n"
    return failed(1, stdout=wrong) if wrong else done()
