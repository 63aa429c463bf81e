"""A program of a node that the lab plays: the login shell, systemctl, journalctl or k3s, by the name it is called.

The lab answers what it plays, or lets the shell run the command for real. This text is copied to the nodes, and needs
nothing but Python.
"""

import json
import os
import socket
import sys
from typing import Any

VERSION = ""  # of k3s, set in the file that is downloaded


def main() -> None:
    if VERSION and sys.argv[1:] == ["--version"]:
        print(f"k3s version {VERSION} (56ec5dd4)\ngo version go1.22.10")
        return
    with open("/run/node") as file:  # noqa: PTH123 - pathlib takes as long to load as all the rest
        node, path = file.read().split()
    name = sys.argv[0].rpartition("/")[2]
    command = os.environ.pop("SSH_ORIGINAL_COMMAND", "") if name == "shell" else ""
    lab = socket.socket(socket.AF_UNIX)
    lab.connect(path)
    stream = lab.makefile("rwb", buffering=0)
    tell(stream, [node, command, [] if name == "shell" else [name, *sys.argv[1:]]])
    answer = json.loads(stream.readline())
    if answer == "stdin":
        tell(stream, sys.stdin.buffer.read().decode(errors="replace"))
        answer = json.loads(stream.readline())
    if answer == "run":
        os.dup2(lab.fileno(), 9)  # the lab sees it closed when the command and all that it started have ended
        os.execv("/bin/sh", ["sh", "-c", command])
    status, out, err = answer
    sys.stdout.write(out)
    sys.stderr.write(err)
    sys.stdout.flush()
    os._exit(status)


def tell(stream: Any, what: object) -> None:
    stream.write(json.dumps(what).encode() + b"\n")


main()
