"""The output of tools that tell which software an image has."""

from __future__ import annotations

import json

from reconciler.lab.wire.facts.context import FactContext
from reconciler.model.gate import CommandResult


def cuda(context: FactContext) -> CommandResult:
    """Print version.json of the CUDA toolkit, which lists its components, too."""
    version = context.image.software["cuda"]
    document = {
        "cuda": {"name": "CUDA SDK", "version": version},
        "cuda_cudart": {"name": "CUDA Runtime (cudart)", "version": f"{version.rpartition('.')[0]}.90"},
    }
    return CommandResult(0, json.dumps(document, indent=3, separators=(",", " : ")) + "\n")


def nccl(context: FactContext) -> CommandResult:
    return CommandResult(0, f"/usr/lib/x86_64-linux-gnu/libnccl.so.{context.image.software['nccl']}\n")


def container_runtime(context: FactContext) -> CommandResult:
    version = context.image.software["containerRuntime"]
    return CommandResult(0, f"containerd containerd.io {version} 88bf19b2105c8b17560993bee28a01ddc2f97182\n")


def kubelet(context: FactContext) -> CommandResult:
    return CommandResult(0, f"Kubernetes v{context.image.software['kubelet']}\n")
