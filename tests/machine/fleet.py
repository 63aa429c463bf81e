"""The fleet: a spec in git with one node, its secrets file, and our command line as a user types it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.machine.bmc import DRIVE_SERIAL, SECOND_SERIAL, URL
from tests.machine.builds import ROOT, VERSIONS
from tests.machine.machine import ADDRESS, MAC, NAME, SERIAL, UUID
from tests.machine.namespace import GATEWAY, INSTALL_PORT, PREFIX
from tests.machine.pki import Pki
from tests.machine.traced import CALLS

IMAGE_PORT = 8090
_FLEET = """\
apiVersion: reconciler.dev/v1alpha1
kind: Fleet
metadata: {{name: machine}}
spec:
  redfish: {{credentials: bmc, tls: {{ca: pki/ca.pem}}}}
  ssh: {{user: root, credentials: ssh, hostKeys: {{authorities: [pki/host-ca.pub]}}}}
  installer:
    listen: "{gateway}:{install_port}"
    url: https://{gateway}:{install_port}
    pxe: {pxe}
    iso: {iso}
    certificate: install-server
    key: install-server-key
    hostCa: host-ca
    measurements: {installer}
  observation: {{concurrency: 4, tolerate: 0, deadlines: {{redfish: 60s, ssh: 90s}}}}
  guards: {{reimage: "100%", reboot: "100%", forget: 1}}
  drift: {{mode: correct}}
---
apiVersion: reconciler.dev/v1alpha1
kind: HardwareProfile
metadata: {{name: qemu}}
spec:
  match: {{manufacturer: Sushy Emulator}}
  inventory: {{nics: 1, drives: 1}}
  bootWays: [{way}]
  bios: {{attributes: {{ProcTurboMode: {turbo}}}}}
  measurements: {{secureBoot: {keys}}}
---
apiVersion: reconciler.dev/v1alpha1
kind: Persona
metadata: {{name: plain}}
spec:
  host: {{sysctls: {{vm.swappiness: "10"}}, services: {{ssh: running}}}}
  gpu: {{mig: disabled}}
  drain: {{provider: none}}
  acceptance: quick
---
apiVersion: reconciler.dev/v1alpha1
kind: AcceptanceProfile
metadata: {{name: quick}}
spec:
  validity: 90d
  phases:
    - {{name: inventory, tests: [{{name: inventory, tool: inventory}}]}}
---
apiVersion: reconciler.dev/v1alpha1
kind: NodePool
metadata: {{name: machines}}
spec:
  {image}
  hardware: qemu
  persona: plain
  nodes:
    - {{name: {node}, bmc: "{bmc}", host: {address}, uuid: {uuid}, {network}{state}, domains: {{rack: r1}}}}
"""
_NETWORK = f"network: {{links: [{{name: lan0, mac: '{MAC}', addresses: [{ADDRESS}/{PREFIX}], gateway: {GATEWAY}}}]}}, "
_IMAGE = """\
apiVersion: reconciler.dev/v1alpha1
kind: GoldenImage
metadata: {{name: machine}}
spec:
  versions:
"""
_VERSION = """\
    - version: "{version}"
      url: http://{gateway}:{port}/{file}.raw.zst
      sha256: {sha256}
      signature:
        key: release
        minisign: |-
{signature}
      layout: {{esp: 512MiB, root: 1GiB, state: 512MiB}}
      preserve: [/state, /data]
      inPlace: {in_place}
      rootDisk: {{serial: "{disk}"}}
      measurements: {measured}
"""


@dataclass
class Command:
    """One run of the command line: what it printed, when, and its exit code."""

    words: tuple[str, ...]
    code: int = -1
    lines: list[tuple[float, str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(line for _, line in self.lines)


@dataclass
class Fleet:
    """A git repository with the spec in `home`, which commands run in."""

    home: Path
    pki: Pki
    builds: Path
    iso: Path | None = None  # another installer than the one that was built

    @property
    def images(self) -> Path:
        """What the image server serves, and signatures beside it."""
        return self.home.parent / "images"

    @property
    def log(self) -> Path:
        """What the last command printed that nobody read."""
        return self.home / "quiet.log"

    @property
    def calls(self) -> Path:
        """When commands waited for an answer of the machine or its BMC."""
        return self.home / "calls"

    @property
    def spec(self) -> Path:
        return self.home / "fleet-spec"

    def make(self) -> None:
        (self.spec / "pki").mkdir(parents=True)
        shutil.copy(self.pki.ca, self.spec / "pki/ca.pem")
        shutil.copy(f"{self.pki.host_ca}.pub", self.spec / "pki/host-ca.pub")
        secrets = self.home / "secrets.yaml"
        secrets.touch(mode=0o600)
        allowed = f'["{GATEWAY.rpartition(".")[0]}.0/{PREFIX}"]'
        secrets.write_text(
            "secrets:\n"
            f"  bmc: {{file: {self.pki.home / 'bmc.json'}, allow: {allowed}}}\n"
            f"  ssh: {{file: {self.pki.reconciler_ssh}, allow: {allowed}}}\n"
            f"  install-server: {{file: {self.pki.certificate}}}\n"
            f"  install-server-key: {{file: {self.pki.key}}}\n"
            f"  host-ca: {{file: {self.pki.host_ca}}}\n"
            f"keys:\n  release: {self.pki.minisign_public}\n"
        )
        (self.home / ".gitignore").write_text("*\n!.gitignore\n!fleet-spec\n!fleet-spec/**\n")
        self._git("init", "-q", "-b", "main")

    def want(
        self,
        message: str,
        version: str = "",
        turbo: str = "Enabled",
        *,
        forged: bool = False,
        file: str = "",
        in_place: bool = False,
        build: str = "",
        way: str = "virtual_media",
        leaves: bool = False,
        loader: str = "",
    ) -> None:
        """Commit a spec. Without a version, the spec manages no image.

        `forged`: B has the signature of A. `file`: what the image server has in place of the version. `build`: another
        build of this version, with a signature of its own.
        `in_place`: whether a node that is well may write the image itself, without the installer.
        `way`: into the installer; with `pxe`, the spec names the node's network, too.
        `loader`: digest of the program that loads the installer's medium.
        `leaves`: the machine leaves the fleet for good, and both its drives are erased.
        """
        erased = f"state: decommissioned, serial: {SERIAL}, erase: {{serials: ['{DRIVE_SERIAL}', '{SECOND_SERIAL}']}}"
        image = f'image: {{name: machine, version: "{version}"}}' if version else ""
        (self.spec / "fleet.yaml").write_text(
            _FLEET.format(
                gateway=GATEWAY,
                install_port=INSTALL_PORT,
                pxe=json.dumps(way == "pxe"),
                network=_NETWORK if way == "pxe" else "",
                iso=self.iso or self.builds / "installer.iso",
                installer=json.dumps(self.measured("installer") | {"loaders": [loader] if loader else []}),
                keys=json.dumps(self.measured("keys")),
                turbo=turbo,
                image=image,
                node=NAME,
                bmc=URL,
                address=ADDRESS,
                uuid=UUID,
                way=way,
                state=erased if leaves else "provision: blank",
            )
        )
        if version:
            versions = []
            for one in VERSIONS:
                built = (build if one == version else "") or one
                served = (file if one == version else "") or built
                versions.append(self._version(one, built, "A" if forged else built, served, in_place=in_place))
            (self.spec / "images.yaml").write_text(_IMAGE.format() + "".join(versions))
        self._git("add", "-A")
        self._git("commit", "-q", "--allow-empty", "-m", message)

    def revert(self) -> None:
        """Take the last commit back, as `git revert` does."""
        self._git("revert", "--no-edit", "HEAD")

    def start(self, *words: str, quiet: bool = False) -> subprocess.Popen[str]:
        """Start a command and leave it running. `quiet`: what it prints goes to a file."""
        environment = {**os.environ, "RECONCILER_SECRETS": str(self.home / "secrets.yaml"), "COLUMNS": "160"}
        environment |= {CALLS: str(self.calls), "PYTHONPATH": str(ROOT)}
        environment["RECONCILER_LEDGER"] = f"sqlite:///{self.home / 'ledger.sqlite'}"
        with self.log.open("w") if quiet else contextlib.nullcontext(subprocess.PIPE) as output:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.machine.traced", *words],
                cwd=self.home,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def run(self, *words: str) -> Command:
        """Run a command to its end, and note when each line was printed."""
        command = Command(words)
        with self.start(*words) as process:
            assert process.stdout is not None
            for line in process.stdout:
                command.lines.append((time.monotonic(), line.rstrip()))
                print(f"    {line.rstrip()}")
        command.code = process.returncode
        return command

    def _version(self, version: str, built: str, signed: str, file: str, *, in_place: bool) -> str:
        signature = (self.images / f"{signed}.minisig").read_text()
        return _VERSION.format(
            version=version,
            file=file,
            gateway=GATEWAY,
            port=IMAGE_PORT,
            sha256=(self.images / f"{built}.line").read_text().split()[2],
            signature=textwrap.indent(signature, " " * 10).rstrip(),
            disk=DRIVE_SERIAL,
            measured=json.dumps(self.measured(version)),
            in_place=json.dumps(in_place),
        )

    def measured(self, what: str) -> dict[str, Any]:
        """Return what booting it measures."""
        found: dict[str, Any] = json.loads((self.builds / "measured.json").read_text())[what]
        return found

    def _git(self, *words: str) -> None:
        who = ("-c", "user.name=operator", "-c", "user.email=operator@example.com")
        subprocess.run(["git", *who, *words], cwd=self.home, check=True, capture_output=True)
