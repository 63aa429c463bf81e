"""The programs that tell a lab machine how to serve, and ask whether it does. What it serves is nobody's concern here.

As on a host, a command that was told under a name is not run again under it.
"""

from __future__ import annotations

from reconciler.lab.hardware.tools.call import Call, Ran, done, failed
from reconciler.model.serving import TELL, probe_of

SECONDS = 5.0


def serving_script(call: Call) -> Ran | None:
    """Tell the machine a command, as `sh -c TELL sh NAME SECONDS ARGV...`; None for any other."""
    match call.args:
        case ("-c", program, "sh", name, _, *argv) if program == TELL:
            state = call.machine.state.serving
            if name not in state.told:
                state.commands.append(tuple(argv))
                state.told[name] = state.fails
            return failed(state.told[name], "the engine refuses\n" if state.told[name] else "", seconds=SECONDS)
    return None


def probe(call: Call) -> Ran | None:
    """Ask a URL of what the machine serves, as the reconciler's probe does; None for any other request."""
    if (call.name, *call.args) != probe_of(call.args[-1]):
        return None
    if not call.machine.state.serving.answers:
        return failed(0, stdout="503")
    return done("200")
