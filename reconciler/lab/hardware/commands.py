"""Command lines on a lab machine: argv -> the output of the real tool, and its duration.

Both servers use this: the in-process Host port, and sshd, which adds tools of its own (`run(..., tools=TOOLS | more)`).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence

from reconciler.gate import lock
from reconciler.gate.tools.shell import AGAIN
from reconciler.lab.hardware.machine import HardwareRejected, Machine
from reconciler.lab.hardware.tools import backup, drives, host_tests, k3s, nccl, serving, slots, soak, tpm
from reconciler.lab.hardware.tools.call import Call, Ran, Tool, done, failed
from reconciler.lab.hardware.tools.dcgmi import dcgmi
from reconciler.lab.hardware.tools.fio import fio
from reconciler.lab.hardware.tools.nvbandwidth import nvbandwidth
from reconciler.lab.hardware.tools.nvidia_smi import nvidia_smi
from reconciler.model.gate import CommandResult
from reconciler.model.install import ContractError, InstallDocument, load_contract

IMAGE_FILE = "/etc/reconciler/image.json"
IN_PLACE_UNIT = "reconciler-install"
_PARTNER = re.compile(r"\$PARTNER\b")
_WORDS = re.compile(r"[A-Za-z](?:[\w ./=:,-]|\$PARTNER\b)*")  # of a command line that asks nothing else of a shell
_STATUS = re.compile(r"/run/reconciler-install/([^/]+)/status\.json")


def run(machine: Machine, argv: Sequence[str], stdin: str = "", tools: Mapping[str, Tool] | None = None) -> Ran:
    """Start a command. Its effects happen now, its result is due after `seconds`. The system must be running."""
    machine.system()
    argv = lock.bare(argv)  # nobody else locks anything on a lab machine, and its commands leave nothing behind
    name = argv[0].rsplit("/", 1)[-1] if argv else ""
    tool = (TOOLS if tools is None else tools).get(name)
    if tool is None:
        return failed(127, f"bash: line 1: {name}: command not found\n")
    return tool(Call(machine, name, tuple(argv[1:]), stdin))


def _env(call: Call) -> Ran:
    """Run `env NAME=value ... command`: start one of the tools below in that environment."""
    words = list(call.args)
    environment = dict(call.environment)
    while words and "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    if not words:
        return done("".join(f"{name}={value}\n" for name, value in environment.items()))
    command = words[0].rsplit("/", 1)[-1]
    tool = TOOLS.get(command)
    if tool is None:
        return failed(127, f"env: '{command}': No such file or directory\n")
    return tool(Call(call.machine, command, tuple(words[1:]), call.stdin, environment))


def _shell(call: Call) -> Ran:
    if lock.is_end((call.name, *call.args)):
        if call.machine.network is not None:
            call.machine.network.end(call.args[-1])
        return done()
    match call.args:
        case ("-c", again, "sh", *words) if again == AGAIN:
            return run(call.machine, _in_environment(call, words))
        case ("-c", line, "sh") if _WORDS.fullmatch(line):
            words = [_PARTNER.sub(call.environment.get("PARTNER", ""), word) for word in line.split()]
            return run(call.machine, _in_environment(call, words))
    ran = (
        tpm.attestation_script(call)
        or k3s.k3s_script(call)
        or backup.backup_script(call)
        or serving.serving_script(call)
        or soak.soak_script(call, lambda argv: run(call.machine, argv))
    )
    return host_tests.shell(call) if ran is None else ran


def _in_environment(call: Call, words: Sequence[str]) -> Sequence[str]:
    return ("env", *(f"{name}={value}" for name, value in call.environment.items()), *words)


def image_json(machine: Machine) -> str:
    """Return /etc/reconciler/image.json as the installer wrote it."""
    return json.dumps(slots.record_of(slots.installed_last(machine.state)), indent=2) + "\n"


def _file(machine: Machine, path: str) -> str | None:
    if path == IMAGE_FILE:
        return image_json(machine) if machine.disk().image else None
    if path == "/etc/hostname":
        return f"{machine.disk().hostname}\n"
    if path == "/proc/sys/kernel/random/boot_id":
        return f"{machine.system().boot_id}\n"
    if path == "/proc/cmdline":
        return slots.command_line(machine.disk())
    if (told := _STATUS.fullmatch(path)) is not None:
        return machine.in_place_status(told[1])
    return slots.files(machine.state).get(path) or machine.disk().files.get(path)


def _python3(call: Call) -> Ran:
    """Run the one Python program that the reconciler starts on hosts: the launcher of an install in place."""
    try:
        files = json.loads(call.stdin)["files"]
        document = load_contract(InstallDocument, base64.b64decode(files["document.json"]).decode())
    except (ValueError, KeyError, ContractError) as error:
        return failed(1, f"Traceback (most recent call last):\n{type(error).__name__}: {error}\n")
    call.machine.start_in_place(document)
    return done(seconds=1.0)


def _cat(call: Call) -> Ran:
    if not call.args:
        return done(call.stdin)
    out, err = "", ""
    for path in call.args:
        text = _file(call.machine, path)
        if text is None:
            err += f"cat: {path}: No such file or directory\n"
        else:
            out += text
    return failed(1, err, stdout=out) if err else done(out)


def _tee(call: Call) -> Ran:
    paths = [word for word in call.args if not word.startswith("-")]
    for path in paths:
        if path == "/dev/kmsg":
            call.machine.system().kernel_log += call.stdin.splitlines()
            continue
        if not path.startswith("/"):
            return failed(1, f"tee: {path}: Permission denied\n", stdout=call.stdin)
        before = call.machine.disk().files.get(path, "") if "-a" in call.args else ""
        call.machine.write_file(path, before + call.stdin)
    return done(call.stdin)


def _mv(call: Call) -> Ran:
    source, target = (word for word in call.args if not word.startswith("-"))
    files = call.machine.disk().files
    within = [path for path in files if path == source or path.startswith(f"{source}/")]
    if not within:
        return failed(1, f"mv: cannot stat '{source}': No such file or directory\n")
    for path in within:
        call.machine.write_file(target + path.removeprefix(source), files.pop(path))
    return done()


def _hostnamectl(call: Call) -> Ran:
    match call.args:
        case ("set-hostname", name) | ("hostname", name):
            call.machine.set_hostname(name)
            return done(seconds=0.3)
        case () | ("status",) | ("hostname",):
            return done(f"   Static hostname: {call.machine.system().hostname}\n")
        case _:
            return failed(1, f"Unknown command verb {' '.join(call.args)}.\n")


def _ipmitool(call: Call) -> Ran:
    """Run ipmitool by the host's own interface: words as ipmitool 1.8.19 prints them (lib/ipmi_mc.c)."""
    if call.args != ("mc", "reset", "cold"):
        return failed(1, "Invalid command\n")
    call.machine.reset_bmc()
    return done("Sent cold reset command to MC\n", seconds=1.0)


def _sysctl(call: Call) -> Ran:
    system = call.machine.system()
    words = [word for word in call.args if not word.startswith("-")]
    if "--system" in call.args:
        for key, value in call.machine.disk().sysctls.items():
            call.machine.sysctl_write(key, value)
        return done("* Applying /etc/sysctl.d/90-reconciler.conf ...\n")
    out, err = "", ""
    for word in words:
        key, assigned, value = word.partition("=")
        if key.strip() not in system.sysctls:
            err += f"sysctl: cannot stat /proc/sys/{key.strip().replace('.', '/')}: No such file or directory\n"
            continue
        if assigned:
            call.machine.sysctl_write(key.strip(), value.strip())
        out += f"{key.strip()} = {system.sysctls[key.strip()]}\n"
    return failed(255, err, stdout=out) if err else done(out)


_CHANGES: Mapping[str, tuple[bool | None, bool | None]] = {  # verb -> (active, enabled); None: unchanged
    "start": (True, None),
    "stop": (False, None),
    "restart": (True, None),
    "enable": (None, True),
    "disable": (None, False),
}


def _systemctl(call: Call) -> Ran:
    words = [word for word in call.args if not word.startswith("-")]
    verb, units = (words[0], [unit.removesuffix(".service") for unit in words[1:]]) if words else ("", [])
    machine = call.machine
    if verb in ("reboot", "poweroff"):
        machine.reboot() if verb == "reboot" else machine.poweroff()
        return done(seconds=0.2)
    if units == [IN_PLACE_UNIT]:
        return _in_place_unit(machine, verb)
    if verb == "kill":
        return soak.kill(call, units)
    if verb in ("daemon-reload", "reload"):
        return done(seconds=0.5)
    if verb in ("is-active", "is-enabled"):
        return _systemctl_is(call, verb, units)
    if verb not in _CHANGES:
        return failed(1, f"Unknown command verb {verb}.\n")
    active, enabled = _CHANGES[verb]
    if "--now" in call.args:
        active = verb == "enable"
    for unit in units:
        try:
            if verb == "restart":
                machine.service_set(unit, active=False)
            machine.service_set(unit, active=active, enabled=enabled)
        except HardwareRejected as refused:
            if enabled is not None:
                return failed(1, f"Failed to {verb} unit: Unit file {unit}.service does not exist.\n")
            return failed(5, f"Failed to {verb} {unit}.service: {refused.detail}\n")
    return _started(machine, units) if active else done(seconds=1.0)


def _started(machine: Machine, units: Sequence[str]) -> Ran:
    """Answer for units that were told to start: systemd waits for one of Type=notify, as the server of K3s is."""
    if "k3s" not in units or machine.system().services_active.get("k3s"):
        return done(seconds=1.0)
    why = "Job for k3s.service failed because the control process exited with error code."
    return failed(1, f'{why}\nSee "systemctl status k3s.service" and "journalctl -xeu k3s.service" for details.\n')


def _in_place_unit(machine: Machine, verb: str) -> Ran:
    machine.catch_up()
    if verb == "stop":
        machine.stop_in_place()
        return done()
    run = machine.state.in_place
    active = run is not None and run.active
    return Ran(_lines(0 if active else 3, ["active" if active else "inactive"]))


def _systemctl_is(call: Call, verb: str, units: Sequence[str]) -> Ran:
    words = []
    for unit in units:
        if verb == "is-active":
            words.append("active" if call.machine.system().services_active.get(unit) else "inactive")
        elif not call.machine.service_known(unit):
            return failed(1, f"Failed to get unit file state for {unit}.service: No such file or directory\n")
        else:
            words.append("enabled" if call.machine.disk().services[unit] else "disabled")
    good = any(word in ("active", "enabled") for word in words)
    return Ran(_lines(0 if good else 3 if verb == "is-active" else 1, words))


def _lines(status: int, lines: Sequence[str]) -> CommandResult:
    return CommandResult(status, "".join(f"{line}\n" for line in lines))


def _test(call: Call) -> Ran:
    match call.args:
        case ("-b", path):
            found = any(path == f"/dev/nvme{at}n1" for at in range(len(call.machine.state.drives)))
        case ("-e" | "-f", path):
            within = call.args[0] == "-e" and any(name.startswith(f"{path}/") for name in call.machine.disk().files)
            found = within or _file(call.machine, path) is not None
        case _:
            return failed(2, f"bash: line 1: test: {' '.join(call.args)}: unary operator expected\n")
    return done() if found else failed(1)


TOOLS: Mapping[str, Tool] = {
    "true": lambda _: done(),
    "false": lambda _: failed(1),
    "sleep": lambda call: done(seconds=float(call.args[0])),
    "hostname": lambda call: done(f"{call.machine.system().hostname}\n"),
    "cat": _cat,
    "env": _env,
    "tee": _tee,
    "test": _test,
    "mkdir": lambda _: done(),
    "mv": _mv,
    "sync": lambda _: done(),
    "hostnamectl": _hostnamectl,
    "sysctl": _sysctl,
    "systemctl": _systemctl,
    "reboot": lambda call: _systemctl(Call(call.machine, "systemctl", ("reboot",))),
    "python3": _python3,
    "nvidia-smi": nvidia_smi(None),
    "ipmitool": _ipmitool,
    "dcgmi": dcgmi,
    "nvbandwidth": nvbandwidth,
    "fio": fio,
    **nccl.TOOLS,
    **drives.TOOLS,
    **host_tests.TOOLS,
    **k3s.TOOLS,
    "sh": _shell,
}
