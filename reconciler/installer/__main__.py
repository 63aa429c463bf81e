"""Install this machine as the attempt on the boot medium says, and switch it off."""

from __future__ import annotations

import time
import traceback

from reconciler.installer.attempt import read_attempt
from reconciler.installer.client import Patience
from reconciler.installer.install import run_attempt
from reconciler.installer.machine import Failed, Machine, power_off, prepare, say
from reconciler.installer.network import bring_up

READ = 10  # seconds for whoever watches the console to read why


def main() -> None:
    """Run an attempt. Whatever happens, the machine goes off: the server knows an install by that."""
    machine, installed = Machine(), False
    try:
        prepare(machine)
        attempt = read_attempt(machine)
        bring_up(machine, attempt)
        installed = run_attempt(machine, attempt, Patience())
    except Failed as error:
        say(f"failed: {error}")
    except Exception:  # noqa: BLE001 - the boundary: a bug of ours must not keep the machine on
        for line in traceback.format_exc().splitlines():
            say(line)
    finally:
        if not installed:
            time.sleep(READ)
        power_off()


if __name__ == "__main__":
    main()
