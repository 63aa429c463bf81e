"""The pods of NVIDIA's GPU Operator that tell of one node whether it is ready.

Names are those of NVIDIA/gpu-operator assets/state-operator-validation and assets/state-device-plugin (a22dbf67). The
init containers of the validator check driver, toolkit, CUDA and device plugin one after the other, so its pod is Ready
only when all of them passed on its node. `status.state` of a ClusterPolicy is of all nodes at once.
"""

from __future__ import annotations

from typing import Final

VALIDATOR: Final = "nvidia-operator-validator"
DEVICE_PLUGIN: Final = "nvidia-device-plugin-daemonset"
OPERANDS: Final = frozenset({VALIDATOR, DEVICE_PLUGIN})
GPU_RESOURCE: Final = "nvidia.com/gpu"
