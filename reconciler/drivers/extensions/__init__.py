"""Extensions: packages that a fleet's spec, or a setting, names with their exact version.

    api     what a package gives, by entry point; authors import it
    fit     says what of one does not fit
    load    finds, checks and imports what is named, once; nothing else is imported

A package that is installed and not named changes nothing: its code is never imported.
"""

from reconciler.drivers.extensions.api import (
    API,
    ForgeConnector,
    GateTool,
    HealthSignals,
    HostFact,
    InstallerServer,
    Measured,
    Notifier,
    Trial,
    Unreadable,
    UnreadableOutputError,
)
from reconciler.drivers.extensions.fit import connected
from reconciler.drivers.extensions.load import Extensions, Installed, extensions_of, forge_extension, installed

__all__ = [
    "API",
    "Extensions",
    "ForgeConnector",
    "GateTool",
    "HealthSignals",
    "HostFact",
    "Installed",
    "InstallerServer",
    "Measured",
    "Notifier",
    "Trial",
    "Unreadable",
    "UnreadableOutputError",
    "connected",
    "extensions_of",
    "forge_extension",
    "installed",
]
