"""How a Persona says that work is given time before it is evicted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from reconciler.model.desired import Checkpoint, DrainPolicy
from reconciler.model.drain import QueueHold, Surge
from reconciler.model.vocab import CheckpointWay, DrainProvider, SignalTo, StopPolicy
from reconciler.spec.kinds.limits import Budget
from reconciler.spec.kinds.persona import Drain
from reconciler.spec.policies import drain_of


def policy(**said: Any) -> DrainPolicy:
    return drain_of(Drain.model_validate_json(json.dumps({"provider": "kubernetes", **said})))


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"annotation": True}, Checkpoint(CheckpointWay.ANNOTATION, 600.0)),
        (
            {"command": {"ask": ["save"], "ready": ["saved"]}, "timeout": "5m"},
            Checkpoint(CheckpointWay.COMMAND, 300.0, ("save",), ("saved",)),
        ),
        ({"http": {"port": 80, "path": "/save"}}, Checkpoint(CheckpointWay.HTTP, 600.0, port=80, path="/save")),
        ({"signal": {}}, Checkpoint(CheckpointWay.SIGNAL, 600.0, signal="USR1")),
        (
            {"signal": {"name": "TERM", "to": "steps"}},
            Checkpoint(CheckpointWay.SIGNAL, 600.0, signal="TERM", to=SignalTo.STEPS),
        ),
    ],
)
def test_work_is_asked_in_one_way(said: dict[str, Any], meant: Checkpoint) -> None:
    found = policy(checkpoint=said, waitForJobs="6h")
    assert found == DrainPolicy(DrainProvider.KUBERNETES, checkpoint=meant, wait_for_jobs_s=6 * 3600.0)


def test_what_is_changed_before_a_drain_is_declared() -> None:
    found = policy(surge={}, kueue={"clusterQueues": ["training"]})
    assert found.surge == Surge(every=False, timeout_s=900.0)
    assert found.hold == QueueHold(("training",), StopPolicy.HOLD_AND_DRAIN, 300.0)
    found = policy(surge={"of": "all", "timeout": "1h"}, kueue={"clusterQueues": ["a", "b"], "stopPolicy": "Hold"})
    assert found.surge == Surge(every=True, timeout_s=3600.0)
    assert found.hold == QueueHold(("a", "b"), StopPolicy.HOLD, 300.0)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"surge": {"of": "some"}}, "annotated"),
        ({"kueue": {"clusterQueues": []}}, "at least 1"),
        ({"kueue": {"clusterQueues": ["A_b"]}}, "name of a ClusterQueue"),
        ({"kueue": {"clusterQueues": ["a"], "stopPolicy": "None"}}, "HoldAndDrain"),
        ({"provider": "none", "surge": {}}, "need provider kubernetes"),
        ({"provider": "none", "kueue": {"clusterQueues": ["a"]}}, "need provider kubernetes"),
        ({"checkpoint": {}}, "in one way"),
        ({"checkpoint": {"annotation": True, "http": {"port": 80, "path": "/"}}}, "in one way"),
        ({"checkpoint": {"annotation": False}}, "True"),
        ({"checkpoint": {"http": {"port": 0, "path": "/"}}}, "greater than or equal to 1"),
        ({"checkpoint": {"http": {"port": 80, "path": "save?x=1"}}}, "path"),
        ({"checkpoint": {"signal": {"name": "KILL"}}}, "pattern"),
        ({"checkpoint": {"signal": {}, "annotation": True}}, "in one way"),
        ({"provider": "none", "waitForJobs": "1h"}, "need provider kubernetes"),
        ({"provider": "command", "command": ["d"], "checkpoint": {"annotation": True}}, "need provider kubernetes"),
    ],
)
def test_what_can_not_be_done_is_refused(said: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        policy(**said)


@pytest.mark.parametrize("said", [{"per": "1h"}, {"nodes": "10%"}, {"during": {"from": "08:00", "to": "18:00"}}])
def test_a_limit_of_each_workload_is_a_count(said: dict[str, Any]) -> None:
    limit = {"scope": "workload", "nodes": "1"}
    Budget.model_validate_json(json.dumps(limit))
    with pytest.raises(ValidationError):
        Budget.model_validate_json(json.dumps(limit | said))
