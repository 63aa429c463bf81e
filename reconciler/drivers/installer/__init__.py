"""The server's side of the install contract, version 1 (docs/reference/installer-contract.md).

server      listens, publishes and withdraws attempts
calls       what each call of an installer answers
host_keys   which host key of an attempt is certified, and what ends the attempt
medium      the boot medium, with each attempt's credential in it
signer      the host CA
"""

from reconciler.drivers.installer.server import HttpInstaller as HttpInstaller
