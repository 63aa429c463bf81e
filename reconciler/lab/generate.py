"""Generate a spec for N loopback nodes, for `lab up --nodes N`."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from reconciler.lab.pki import ImageKey

RACKS = 6
POOL_SIZE = 100
KEY_NAME = "release"
_INLINE_LIMIT = 50  # more nodes go into a CSV file
_IMAGE, _VERSION = "ubuntu-gpu", "2026.11.1"
_VERSIONS: Mapping[str, Mapping[str, str]] = {
    _VERSION: {"kernel": "6.8.0-48-generic", "driver": "570.124.06", "cuda": "12.8"},
    "2026.12.0": {"kernel": "6.8.0-51-generic", "driver": "570.133.20", "cuda": "12.8"},  # to move to
}
_API = "reconciler.dev/v1alpha1"
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Addresses:
    """The ports of all servers. `nodes`: (BMC port, SSH port) of each node. `slurm`: of its login host."""

    nodes: Sequence[tuple[int, int]]
    installer: int
    iso: int
    slurm: int | None = None  # None: the fleet has a Kubernetes, and no Slurm


def generate_spec(directory: Path, addresses: Addresses, *, tls_ca: str, ssh_ca: str, image_key: ImageKey) -> None:
    """Write the spec's files below `directory`. Three of four nodes are for training, the others for inference."""
    _write(directory / "fleet.yaml", _fleet(addresses), _cluster(addresses.slurm))
    _write(directory / "hardware.yaml", _hardware())
    _write(directory / "images.yaml", _image(image_key))
    _write(directory / "personas.yaml", *_personas(slurm=addresses.slurm is not None))
    _write(directory / "policies.yaml", _acceptance(), _remediation())
    for path, text in (("pki/bmc-ca.pem", tls_ca), ("pki/ssh-host-ca.pub", ssh_ca)):
        (directory / path).parent.mkdir(exist_ok=True)
        (directory / path).write_text(text, encoding="utf-8")
    rows = [_node(at, len(addresses.nodes), ports) for at, ports in enumerate(addresses.nodes)]
    for number, start in enumerate(range(0, len(rows), POOL_SIZE), start=1):
        hundred = rows[start : start + POOL_SIZE]
        split = len(hundred) - len(hundred) // 4
        for name, persona, members in (
            (f"train-{number}", "training", hundred[:split]),
            (f"infer-{number}", "inference", hundred[split:]),
        ):
            if members:
                _write_pool(directory / "pools", name, persona, members, inline=len(rows) <= _INLINE_LIMIT)


def _write_pool(directory: Path, name: str, persona: str, members: Sequence[Document], *, inline: bool) -> None:
    spec: Document = {"image": {"name": _IMAGE, "version": _VERSION}, "hardware": "hgx-h100", "persona": persona}
    directory.mkdir(exist_ok=True)
    if inline:
        spec["nodes"] = [
            {
                "name": row["name"],
                "bmc": row["bmc"],
                "host": row["host"],
                "serial": row["serial"],
                "domains": {"rack": row["rack"]},
            }
            for row in members
        ]
    else:
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(["name", "bmc", "host", "serial", "domains.rack"])
        table.writerows([row["name"], row["bmc"], row["host"], row["serial"], row["rack"]] for row in members)
        (directory / f"{name}.csv").write_text(text.getvalue(), encoding="utf-8")
        spec["inventory"] = f"pools/{name}.csv"
    _write(directory / f"{name}.yaml", _resource("NodePool", name, spec))


def _node(at: int, total: int, ports: tuple[int, int]) -> Document:
    per_rack = max(-(-total // RACKS), 1)
    return {
        "name": f"gpu-{at + 1:0{max(4, len(str(total)))}d}",
        "bmc": f"https://127.0.0.1:{ports[0]}",
        "host": f"127.0.0.1:{ports[1]}",
        "serial": f"SN{at + 1:06d}",  # declared: nothing else identifies a machine that is off (DESIGN 5)
        "rack": f"r{at // per_rack + 1}",
    }


def _resource(kind: str, name: str, spec: Document) -> Document:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _write(path: Path, *documents: Document) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    yaml = YAML(typ="rt", pure=True)
    yaml.width = 120
    with path.open("w", encoding="utf-8") as out:
        yaml.dump_all(documents, out)


def _fleet(addresses: Addresses) -> Document:
    spec = {
        "cluster": "main",
        "redfish": {"credentials": "bmc", "tls": {"ca": "pki/bmc-ca.pem"}},
        "ssh": {"user": "root", "credentials": "ssh", "hostKeys": {"authorities": ["pki/ssh-host-ca.pub"]}},
        "installer": {
            "listen": f"127.0.0.1:{addresses.installer}",
            "iso": f"http://127.0.0.1:{addresses.iso}/installer.iso",
        },
        "budgets": [{"scope": "fleet", "nodes": "25%"}, {"scope": "rack", "nodes": "50%"}],
        "guards": {"reimage": "100%", "reboot": "100%"},  # a lab may be reimaged all at once
        "drift": {"mode": "correct"},
        "defaults": {"remediation": "standard", "host": {"hostname": "fromName"}},
    }
    return _resource("Fleet", "lab", spec)


def _cluster(slurm: int | None) -> Document:
    if slurm is not None:
        return _resource("Cluster", "main", {"type": "slurm", "slurm": {"login": f"127.0.0.1:{slurm}"}})
    join = {"command": ["systemctl", "enable", "--now", "kubelet"]}
    return _resource("Cluster", "main", {"type": "kubernetes", "kubeconfig": "kubeconfig", "join": join})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _firmware(component: str, version: str, stage: int, activation: str, minutes: int) -> Document:
    url = f"https://firmware.lab.invalid/{component}-{version}.bin"
    return {
        "component": component,
        "inventoryId": component.upper(),
        "version": version,
        "stage": stage,
        "activation": activation,
        "minutes": minutes,
        "url": url,
        "sha256": _digest(url),
    }


def _hardware() -> Document:
    spec = {
        "match": {"manufacturer": "Supermicro", "model": "SYS-821GE-TNHR"},
        "inventory": {
            "gpus": 8,
            "gpuModel": "NVIDIA H100 80GB HBM3",
            "nvlinksPerGpu": 18,
            "rdmaPorts": 8,
            "rdmaRateGbps": 400,
            "nics": 10,
            "drives": 5,
            "dimms": 32,
            "memory": "2TiB",
            "processors": 2,
        },
        "firmware": [
            _firmware("bmc", "01.05.03", 1, "bmc_reset", 10),
            _firmware("bios", "2.4", 2, "reboot", 8),
            _firmware("nic0", "28.43.1014", 3, "power_cycle", 5),
        ],
        "bios": {"attributes": {"SriovGlobalEnable": "Enabled", "NumaNodesPerSocket": "NPS1"}},
        "secureBoot": True,
        "bootOrder": ["Hdd", "Pxe"],
    }
    return _resource("HardwareProfile", "hgx-h100", spec)


def _image(key: ImageKey) -> Document:
    return _resource("GoldenImage", _IMAGE, {"versions": [_image_version(key, *item) for item in _VERSIONS.items()]})


def _image_version(key: ImageKey, version: str, contents: Mapping[str, str]) -> Document:
    url = f"https://images.lab.invalid/{_IMAGE}-{version}.raw.zst"
    digest = _digest(url)
    return {
        "version": version,
        "url": url,
        "sha256": digest,
        "signature": {"key": KEY_NAME, "minisign": LiteralScalarString(key.sign_image(_IMAGE, version, digest))},
        "contents": dict(contents),
        "hardware": ["hgx-h100"],
        "rootDisk": {"model": "SAMSUNG MZ1L2960HCJR-00A07", "maxSize": "1TB"},
    }


def _personas(*, slurm: bool) -> list[Document]:
    found = [_persona("training", None), _persona("inference", {"3g.40gb": 2})]
    for persona in found if slurm else ():
        spec = persona["spec"]
        del spec["labels"], spec["taints"]  # nodes of Slurm have none
        signal = {"signal": {"name": "USR1"}, "timeout": "5m"}
        spec["drain"] = {"provider": "slurm", "waitForJobs": "2h", "checkpoint": signal, "timeout": "10m"}
    return found


def _persona(name: str, mig: Mapping[str, int] | None) -> Document:
    services = dict.fromkeys(("nvidia-fabricmanager", "containerd", "kubelet"), "running")
    spec = {
        "labels": {"workload": name},
        "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
        "gpu": {"mig": dict(mig) if mig else "disabled"},
        "host": {"sysctls": {"vm.swappiness": "1"}, "services": services},
        "drain": {"provider": "kubernetes", "timeout": "10m"},
        "acceptance": "standard",
    }
    return _resource("Persona", name, spec)


def _acceptance() -> Document:
    tests = [
        {"name": "dcgm", "tool": "dcgmi-diag", "args": {"level": 2}, "timeout": "10m"},
        {
            "name": "nccl",
            "tool": "nccl-tests",
            "args": {"collective": "all_reduce", "minBytes": "8G", "maxBytes": "16G"},
            "thresholds": [{"metric": "busbw_peak", "min": 440}],
            "timeout": "10m",
        },
    ]
    phases = [
        {"name": "inventory", "tests": [{"name": "inventory", "tool": "inventory"}, {"name": "xids", "tool": "xid"}]},
        {"name": "burn", "tests": tests},
    ]
    return _resource("AcceptanceProfile", "standard", {"validity": "90d", "phases": phases})


def _remediation() -> Document:
    spec = {
        "window": "1d",
        "ladder": [{"action": "soft_restart", "attempts": 1}, {"action": "power_cycle", "attempts": 1}],
        "ignoreXids": [13, 31, 43, 45],
        "hostDownAfter": "5m",
        "nodeConditions": [{"type": "GpuUnhealthy"}],
    }
    return _resource("RemediationPolicy", "standard", spec)
