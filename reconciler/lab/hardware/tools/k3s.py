"""The program k3s of the lab, and the programs that put it on a machine.

Outputs are those of K3s' sources and documents: pkg/cli/token/token.go, docs.k3s.io "etcd-snapshot", "token".
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Final

from reconciler.lab.hardware.k3s_disk import same_place, state_lines
from reconciler.lab.hardware.k3s_site import K3sSite, version_of
from reconciler.lab.hardware.tools.call import Call, Ran, Tool, done, failed, parse_options
from reconciler.lab.hardware.tools.serving import compare, probe
from reconciler.model.gate import CommandResult
from reconciler.model.k3s_datastore import PROBE, SAME
from reconciler.model.k3s_removal import REMOVAL

_MINUTES = re.compile(r"(\d+)m")
_REFUSED: Final = "The connection to the server 127.0.0.1:6443 was refused - did you specify the right host or port?\n"


def _k3s(call: Call) -> Ran:
    version = version_of(call.machine.disk())
    if not version:
        return failed(127, "bash: line 1: /usr/local/bin/k3s: No such file or directory\n")
    if call.args == ("--version",):
        return done(f"k3s version {version} (56ec5dd4)\ngo version go1.22.10\n")
    site = call.machine.k3s
    if call.args[:2] == ("server", "--cluster-reset") and site is not None:
        return _reset(site, call)
    if site is None or not site.serves(call.machine.name):
        return failed(1, _REFUSED)
    commands = {"kubectl": _kubectl, "token": _token, "etcd-snapshot": _snapshot}
    ran = commands[call.args[0]](site, call) if call.args and call.args[0] in commands else None
    return ran or failed(1, f'No help topic for "{" ".join(call.args)}"\n')


def k3s_script(call: Call) -> Ran | None:
    """Run a program of the reconciler as `sh -c PROGRAM`; None for any other: it takes K3s away, or finds its state."""
    if call.args == ("-c", PROBE):
        return done("".join(f"{line}\n" for line in (*state_lines(call.machine.disk()), "end")))
    if call.args == ("-c", SAME):
        return done(f"{same_place(call.machine.disk(), call.stdin.rstrip(chr(10)))}\n")
    if call.args != ("-c", REMOVAL):
        return None
    if call.machine.k3s is not None:
        call.machine.k3s.removed(call.machine)
    return done("end\n", seconds=20.0)


def _reset(site: K3sSite, call: Call) -> Ran:
    options, _ = parse_options(call.args, {"--cluster-reset-restore-path": "path", "--token-file": "token"})
    token = call.machine.disk().files.get(options.get("token", ""), "")
    if why := site.reset(call.machine, options.get("path", ""), token, local="--etcd-s3=false" in call.args):
        return failed(1, f'time="2026-11-27T04:00:00Z" level=fatal msg="Error: {why}"\n', seconds=5.0)
    said = "Managed etcd cluster membership has been reset, restart without --cluster-reset flag now. "
    return Ran(CommandResult(0, "", f'time="2026-11-27T04:00:00Z" level=info msg="{said}"\n'), 30.0)


def _kubectl(site: K3sSite, call: Call) -> Ran | None:
    match call.args[1:]:
        case ("get", "--raw", "/readyz"):
            return done("ok")
        case ("delete", "secret", name, "--namespace", "kube-system", "--ignore-not-found"):
            known = site.passwords.pop(name.removesuffix(".node-password.k3s"), None)
            return done("" if known is None else f'secret "{name}" deleted\n')
        case ("delete", "node", name, "--ignore-not-found"):
            if not site.known(name):
                return done()
            site.forget(name)
            return done(f'node "{name}" deleted\n')
        case ("get", "nodes", "--output", "name"):
            return done("".join(f"node/{name}\n" for name in site.nodes()))
    return None


def _token(site: K3sSite, call: Call) -> Ran | None:
    match call.args[1:]:
        case ("create", *rest):
            return _create(site, tuple(rest))
        case ("list", "--output", "json"):
            return done(json.dumps(_listed(site)) + "\n")
        case ("delete", *names):
            for name in names:
                if site.tokens.pop(name, None) is None:
                    why = f'secrets "bootstrap-token-{name}" not found'
                    return failed(1, f'failed to delete bootstrap token "{why}": {why}\n')
            return done("".join(f'bootstrap token "{name}" deleted\n' for name in names))
    return None


def _snapshot(site: K3sSite, call: Call) -> Ran | None:
    match call.args[1:]:
        case ("save", "--name", name):
            return done(f"Snapshot {site.save(call.machine, name)} saved.\n", seconds=5.0)
        case ("delete", *names):
            gone = {name: site.delete(call.machine, name) for name in names}
            said = "".join(f"Snapshot {name} deleted.\n" for name, there in gone.items() if there)
            if missing := [name for name, there in gone.items() if not there]:
                return failed(1, f'level=fatal msg="Error: snapshot {missing[0]} not found"\n', stdout=said)
            return done(said)
        case ("ls",):
            rows = [f"{one} file:///var/lib/rancher/k3s/server/db/snapshots/{one} 3678240\n" for one in site.snapshots]
            rows += [f"{one} s3://bucket/folder/{one} 3678240\n" for one in site.bucket]
            return done("Name Location Size Created\n" + "".join(rows))
    return None


def _create(site: K3sSite, args: tuple[str, ...]) -> Ran:
    options, _ = parse_options(args, {"--ttl": "ttl", "--description": "description"})
    minutes = _MINUTES.fullmatch(options.get("ttl", ""))
    token = site.create_token(options.get("description", ""), 86400.0 if minutes is None else 60.0 * int(minutes[1]))
    return done(f"{token}\n")


def _listed(site: K3sSite) -> list[dict[str, object]]:
    """List tokens as their type is written: a description that is empty is left out (pkg/kubeadm/types.go)."""
    listed: list[dict[str, object]] = []
    for name, token in site.valid().items():
        listed.append({"token": f"{name}.{token.secret}", "usages": ["signing", "authentication"]})
        if token.description:
            listed[-1]["description"] = token.description
    return listed


def _journalctl(call: Call) -> Ran:
    """Print what K3s logged when its last start ended, of `journalctl -u k3s`."""
    said = None if call.machine.k3s is None else call.machine.k3s.said.get(call.machine.name)
    if "-u" not in call.args or said is None:
        return done()
    why = f"starting kubernetes: preparing server: {said}"
    return done(f'time="2026-11-27T04:00:00Z" level=fatal msg="{why}"\n')


def _curl(call: Call) -> Ran:
    """Download a file, which holds its own URL. What breaks off leaves its first half, and goes on from there."""
    if (probed := probe(call)) is not None:
        return probed
    options, words = parse_options(call.args, {"--output": "output", "--retry": "", "--retry-delay": "", "-C": "",
                                               "--continue-at": ""})  # fmt: skip
    machine, url = call.machine, words[-1]
    if machine.k3s is not None and machine.k3s.curl_says is not None:
        return failed(*machine.k3s.curl_says)
    have = machine.disk().files.get(options["output"], "")
    if machine.k3s is not None and machine.name in machine.k3s.breaking and not have:
        machine.write_file(options["output"], url[: len(url) // 2])
        return failed(18, f"curl: (18) transfer closed with {len(url) - len(url) // 2} bytes remaining to read\n")
    machine.write_file(options["output"], have + url[len(have) :])
    return done(seconds=3.0)


def _sha256sum(call: Call) -> Ran:
    if call.args[:1] == ("--check",):
        return compare(call)
    text = call.machine.disk().files.get(call.args[0])
    if text is None:
        return failed(1, f"sha256sum: {call.args[0]}: No such file or directory\n")
    return done(f"{hashlib.sha256(text.encode()).hexdigest()}  {call.args[0]}\n")


def _install(call: Call) -> Ran:
    match call.args:
        case ("-m", _, "/dev/stdin", path):
            call.machine.write_file(path, call.stdin)
            return done()
    return failed(1, "install: missing file operand\n")


def _rm(call: Call) -> Ran:
    files = call.machine.disk().files
    for path in call.args[1:]:
        for name in [name for name in files if f"{name}/".startswith(f"{path}/")]:
            del files[name]
    return done()


def _findmnt(call: Call) -> Ran:
    """List mount points, or those of /etc/fstab: every one of these is mounted but what the site says."""
    site, lines = call.machine.k3s, call.machine.disk().files.get("/etc/fstab", "").splitlines()
    declared = [line.split()[1] for line in lines if line.strip() and not line.lstrip().startswith("#")]
    failed_to = "" if site is None else site.unmounted.get(call.machine.name, "")
    found = declared if "--fstab" in call.args else ["/", "/proc", *(one for one in declared if one != failed_to)]
    return done("".join(f"{one}\n" for one in found)) if found else failed(1, "")


TOOLS: Mapping[str, Tool] = {
    "k3s": _k3s,
    "curl": _curl,
    "sha256sum": _sha256sum,
    "install": _install,
    "rm": _rm,
    "findmnt": _findmnt,
    "journalctl": _journalctl,
    "chmod": lambda _: done(),
    "id": lambda call: done("0\n") if call.args == ("-u",) else failed(1, "id: extra operand\n"),
}
