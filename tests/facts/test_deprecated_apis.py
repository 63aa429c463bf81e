"""The shell of the fact of K3s, on a server whose API server answers its metrics, and on one whose does not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from reconciler.drivers.ssh.facts.k3s import K3S, parse_k3s
from reconciler.model.gate import CommandResult
from reconciler.model.k3s import BINARY, DATASTORE, DeprecatedApi

METRICS = """\
# HELP apiserver_requested_deprecated_apis [STABLE] Gauge of deprecated APIs that have been requested, broken out by \
API group, version, resource, subresource, and removed_release.
# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group="",removed_release="",resource="componentstatuses",subresource="",version\
="v1"} 1
apiserver_requested_deprecated_apis{group="policy",removed_release="1.25",resource="poddisruptionbudgets",subresource=""\
,version="v1beta1"} 1
# HELP apiserver_storage_objects [STABLE] Number of stored objects, with 100% of %s in "quotes".
apiserver_storage_objects{resource="pods"} 12
"""
PROGRAM = """\
#!/bin/sh
case "$*" in
--version) echo 'k3s version v1.31.5+k3s1 (56ec5dd4)' ;;
'kubectl get --raw /metrics') cat metrics ;;
*) exit 1 ;;
esac
"""
BUDGETS = DeprecatedApi("policy", "v1beta1", "poddisruptionbudgets", "1.25")


@pytest.mark.parametrize("answers", [True, False])
def test_a_server_tells_what_its_api_server_was_asked_for(tmp_path: Path, answers: bool) -> None:
    program, datastore = tmp_path / "k3s", tmp_path / "etcd"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    datastore.mkdir()
    if answers:
        (tmp_path / "metrics").write_text(METRICS)
    script = K3S.command.replace(BINARY, str(program)).replace(DATASTORE, str(datastore)).replace("id -u", "echo 0")
    told = subprocess.run(["sh"], input=script, capture_output=True, text=True, cwd=tmp_path, check=True, timeout=30)
    found = parse_k3s(CommandResult(0, told.stdout))
    assert found.value.datastore
    assert found.value.deprecated == ((BUDGETS,) if answers else None)
    assert ("k3s.deprecated" in found.notes) is not answers
