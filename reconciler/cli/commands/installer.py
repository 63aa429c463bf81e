"""reconciler installer"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from reconciler.app.installer_build import ARCHITECTURE_NAMES, BuiltInstaller, InstallerRequest, build_installer
from reconciler.cli.groups import Group
from reconciler.cli.options import grouped
from reconciler.cli.terminal import say, show

_MIB = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class NamedFile(click.ParamType[tuple[str, Path]]):
    """NAME=FILE, where the file exists."""

    name = "name=file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Path]:
        if isinstance(value, tuple):
            return value
        name, _, file = str(value).partition("=")
        if not _NAME.fullmatch(name) or not file:
            self.fail(f"{value!r} is not NAME=FILE", param, ctx)
        return name, _file.convert(file, param, ctx)


_file = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group(cls=Group)
def installer() -> None:
    """Build the installer that writes images to machines."""


@installer.command()
@grouped(
    InstallerRequest,
    click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, metavar="DIR",
                 help="Write installer.iso, installer.efi and installer.json here."),
    click.option("--ca", type=_file, required=True, metavar="FILE",
                 help="CA certificates (PEM) of the servers of images and installs. The installer trusts no others."),
    click.option("--trusted-key", "trusted_keys", type=NamedFile(), multiple=True, required=True,
                 metavar="NAME=FILE", callback=lambda _ctx, _option, pairs: dict(pairs),
                 help="A minisign public key that images may be signed with, by its name in the spec."),
    click.option("--key", type=_file, metavar="FILE", help="Sign for Secure Boot with this key (PEM)."),
    click.option("--cert", type=_file, metavar="FILE", help="Certificate of --key (PEM), as in the firmware's db."),
    click.option("--arch", type=click.Choice(ARCHITECTURE_NAMES), default="x86_64", show_default=True,
                 help="Processor of the machines."),
    click.option("--suite", metavar="NAME", help="Debian release of the packages. Default: that of this machine."),
    click.option("--component", "components", multiple=True, metavar="NAME",
                 help="Component of the archive, in place of main and non-free-firmware."),
    click.option("--mirror", "mirrors", multiple=True, metavar="URL",
                 help="Archive, in place of Debian's own with its updates: a URL, or a line as in sources.list."),
    click.option("--append", default="", metavar="TEXT",
                 help="Add this to the kernel's command line, such as console=ttyS1,115200."),
)  # fmt: skip
def build(request: InstallerRequest) -> None:
    """Build the installer's boot medium from packages of Debian.

    The same packages and SOURCE_DATE_EPOCH give the same bytes.
    """
    built = build_installer(request, lambda step: say(step, err=True))
    _tell_missing(built)
    lines = [
        f"{built.sizes[file.name] / _MIB:6.1f} MiB  {built.digests[file.name]}  {file}\n"
        for file in (built.iso, built.uki)
    ]
    show("".join(lines))
    measured = built.measurements
    programs, phases = ", ".join(measured.applications), ", ".join(f"{k}: {v}" for k, v in measured.pcr11.items())
    show(f"measurements: {{applications: [{programs}], pcr11: {{{phases}}}}}\n", "yaml")
    signed = "signed for Secure Boot" if built.signed else "not signed: Secure Boot must be off (--key, --cert)"
    say(f"kernel {built.kernel}; {signed}", err=True)


def _tell_missing(built: BuiltInstaller) -> None:
    for module, files in sorted(built.missing_firmware.items()):
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        say(f"no package has firmware for {module}: {files[0]}{more}", err=True)
