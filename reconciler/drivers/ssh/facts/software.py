"""Facts of the installed software that an image promises: CUDA, NCCL, the container runtime and the kubelet.

The CUDA version that nvidia-smi prints is no such fact: it is the newest that the driver supports, whatever is there.
"""

from __future__ import annotations

import re

from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt, find_json
from reconciler.model.gate import CommandResult
from reconciler.model.vocab import UnknownReason

_VERSION = re.compile(r"\d{1,9}(?:\.\d{1,9})+")
_BUILT = re.compile(r"\.\d{8}$")  # version.json of some packages: the day of the build in place of the update
_NVCC = re.compile(r"\brelease (\d{1,4}\.\d{1,4}), V\d")
_NCCL = re.compile(r"libnccl\.so\.(\d{1,4}\.\d{1,4}\.\d{1,4})")
_RUNTIMES = {
    "containerd": re.compile(r"^containerd \S+ v?(\d\S*)", re.MULTILINE),
    "cri-o": re.compile(r"^crio version v?(\d\S*)", re.MULTILINE),
    "docker": re.compile(r"^Docker version v?(\d[^\s,]*)", re.MULTILINE),
}
_KUBELET = re.compile(r"^Kubernetes v(\d\S*)$", re.MULTILINE)


def parse_cuda(answer: CommandResult) -> Parsed[str]:
    """Return the toolkit's version: 12.8.1 by version.json, and 12.8 by nvcc, which tells no update."""
    if match := _NVCC.search(answer.stdout):
        return Parsed(match[1])
    document = find_json(answer.stdout)
    found = document.get("cuda") if isinstance(document, dict) else None
    version = found.get("version") if isinstance(found, dict) else None
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise Unreadable(f"no version of CUDA: {excerpt(answer.stdout, 80)!r}")
    return Parsed(_BUILT.sub("", version))


def parse_nccl(answer: CommandResult) -> Parsed[str]:
    """Return the version in the name of the file that programs load as libnccl.so.2."""
    path = answer.stdout.strip()
    if not path:
        raise Unreadable("the dynamic linker knows no libnccl.so.2", UnknownReason.UNSUPPORTED)
    match = _NCCL.fullmatch(path.rpartition("/")[2])
    if match is None:
        raise Unreadable(f"no version in the name of the library: {excerpt(path, 80)!r}")
    return Parsed(match[1])


def parse_container_runtime(answer: CommandResult) -> Parsed[str]:
    """Return name and version, like "containerd 1.7.24"."""
    for name, pattern in _RUNTIMES.items():
        if match := pattern.search(answer.stdout):
            return Parsed(f"{name} {match[1]}")
    raise Unreadable(f"no version of a container runtime: {excerpt(answer.stdout, 80)!r}")


def parse_kubelet(answer: CommandResult) -> Parsed[str]:
    match = _KUBELET.search(answer.stdout)
    if match is None:
        raise Unreadable(f"no version of the kubelet: {excerpt(answer.stdout, 80)!r}")
    return Parsed(match[1])


CUDA = Fact(
    "cuda",
    "cat /usr/local/cuda/version.json 2>/dev/null || nvcc --version 2>/dev/null || /usr/local/cuda/bin/nvcc --version",
    parse_cuda,
    ("cuda",),
)
NCCL = Fact(
    "nccl",
    "readlink -f \"$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p | sed -n 's/.*libnccl\\.so\\.2 .*=> //p' | head -n 1)\"",
    parse_nccl,
    ("nccl",),
    statuses=frozenset({0, 1}),
)
CONTAINER_RUNTIME = Fact(
    "container_runtime",
    "containerd --version 2>/dev/null || crio --version 2>/dev/null || docker --version",
    parse_container_runtime,
    ("container_runtime",),
)
KUBELET = Fact("kubelet", "kubelet --version", parse_kubelet, ("kubelet",))
