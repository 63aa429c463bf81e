"""A node for soaks: real shells and processes in a folder, with stand-ins for systemd-run and systemctl alone.

The stand-ins print what systemd 252 of Debian 12 prints, and start processes that outlive their parent, as units do.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reconciler.gate.lock import FILE
from reconciler.gate.soak.on_node import FOLDER
from reconciler.model.gate import CommandResult
from reconciler.model.observed import Answered, HostFacts, Silent, Xid

_BOOT = "/proc/sys/kernel/random/boot_id"
_RUN = """#!/bin/sh
for word in "$@"; do case $word in --unit=*) unit=${word#--unit=};; --*) ;; *) break;; esac; shift; done
[ ! -e "$UNITS/$unit" ] || { echo "Failed to start transient service unit: Unit $unit already exists." >&2; exit 1; }
setsid sh -c '"$@"; echo $? >"$UNITS/$0.status"' "$unit" "$@" </dev/null >/dev/null 2>&1 &
echo $! >"$UNITS/$unit"
"""
_CTL = """#!/bin/sh
case $1 in
show)
  for word in "$@"; do unit=$word; done
  [ -e "$UNITS/$unit" ] || { printf 'Result=success\\nExecMainStatus=0\\nLoadState=not-found\\nActiveState=inactive\\nSubState=dead\\n'; exit; }
  if [ -e "$UNITS/$unit.status" ]; then
    status=$(cat "$UNITS/$unit.status")
    [ "$status" = 0 ] && echo "Result=success" || echo "Result=exit-code"
    printf "ExecMainStatus=$status\\nLoadState=loaded\\n"
    [ "$status" = 0 ] && printf "ActiveState=active\\nSubState=exited\\n" || printf "ActiveState=failed\\nSubState=failed\\n"
  elif kill -0 "$(cat "$UNITS/$unit")" 2>/dev/null; then
    printf "Result=success\\nExecMainStatus=0\\nLoadState=loaded\\nActiveState=active\\nSubState=running\\n"
  else
    printf "Result=signal\\nExecMainStatus=9\\nLoadState=loaded\\nActiveState=failed\\nSubState=failed\\n"
  fi;;
list-units)
  for word in "$@"; do pattern=$word; done
  cd "$UNITS"; for unit in $pattern; do [ ! -e "$unit" ] || echo "$unit loaded active running /bin/sh"; done;;
stop) pkill -9 -s "$(cat "$UNITS/$2")"; rm -f "$UNITS/$2" "$UNITS/$2.status";;
esac
exit 0
"""  # noqa: E501 - as systemd's lines are


class SoakNode:
    """Implements the parts of ports.Host that a soak uses. `facts_now`: what `facts` answers."""

    def __init__(self, folder: Path, facts_now: Answered[HostFacts] | Silent) -> None:
        self.folder, self.facts_now = folder, facts_now
        self.commands = 0
        for name, script in (("systemd-run", _RUN), ("systemctl", _CTL)):
            file = folder / "bin" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(script)
            file.chmod(0o755)
        (folder / "units").mkdir()
        self.reboot()

    @property
    def soaks(self) -> Path:
        return self.folder / "soak"

    @property
    def units(self) -> list[Path]:
        return sorted(file for file in (self.folder / "units").iterdir() if file.suffix == ".service")

    def kill(self) -> None:
        """End all that the units run, as a power cut or the kernel does, and wait until no process writes any more.

        timeout(1) has a process group of its own, so all processes of the unit's session are meant.
        """
        for unit in self.units:
            for _ in range(200):
                if subprocess.run(["pkill", "-9", "-s", str(int(unit.read_text()))], check=False).returncode != 0:
                    break
                time.sleep(0.01)

    def happen(self, event: str) -> None:
        match event:
            case "reboot":
                self.reboot()
            case "kill":
                self.kill()
            case "remove":
                self.kill()
                shutil.rmtree(self.soaks)
            case "xid":
                assert isinstance(self.facts_now, Answered)
                xid = Xid(79, "0000:1b:00", 1, text="GPU has fallen off the bus.")
                self.facts_now = replace(self.facts_now, value=replace(self.facts_now.value, xids=(xid,)))

    async def has_run(self, soak: str = "a1") -> None:
        """Wait until a step has ended."""
        runs = self.soaks / soak / "runs"
        async with asyncio.timeout(20):
            while not runs.exists() or not runs.read_text():  # noqa: ASYNC110 - another process writes the file
                await asyncio.sleep(0.05)

    def reboot(self) -> None:
        self.kill()
        for unit in self.units:
            unit.unlink()
        (self.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")

    async def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        self.commands += 1
        here = {FOLDER: str(self.soaks), FILE: str(self.folder / "lock"), _BOOT: str(self.folder / "boot_id")}
        words = list(argv)
        for path, own in here.items():
            words = [word.replace(path, own) for word in words]
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "UNITS": f"{self.folder}/units",
        }
        done = await asyncio.to_thread(
            subprocess.run,
            words,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment,
            check=False,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    async def facts(self, _sysctls: Sequence[str], _services: Sequence[str]) -> Answered[HostFacts] | Silent:
        return self.facts_now
