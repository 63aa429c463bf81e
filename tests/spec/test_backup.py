"""How a Persona says what is saved of a node before its disk is written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from reconciler.model.backup import DesiredBackup
from reconciler.spec.kinds.persona import Backup
from reconciler.spec.policies import backup_of
from tests.spec.example import load

SAID = {
    "paths": ["/srv/models", "/etc/our-service"],
    "repository": "rest:https://backup.example/fleet",
    "environment": {"RESTIC_PASSWORD": "restic"},
}


def parsed(**changes: Any) -> DesiredBackup | None:
    return backup_of(Backup.model_validate_json(json.dumps({**SAID, **changes})))


def test_it_arrives_at_the_nodes_of_the_persona_with_its_line() -> None:
    edit = ("persona.yaml", "  drain: {", f"  backup: {json.dumps(SAID)}\n  drain: {'{'}")
    node = load(edit).nodes["gpu-a001"]
    assert node.profile.backup == parsed()
    assert str(node.profile.provenance["backup"]).startswith("persona.yaml:")


def test_it_is_read_as_it_was_said() -> None:
    server = "rest:https://backup.example/fleet"
    wanted = DesiredBackup(("/srv/models", "/etc/our-service"), server, {"RESTIC_PASSWORD": "restic"})
    assert parsed() == wanted
    assert backup_of(None) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"paths": []}, "say what is saved: paths or images"),
        ({"images": ["engine"]}, "the name of a container image"),
        ({"images": ["engine:v1"], "paths": ["/var/lib"]}, "/var/lib/reconciler/images is within /var/lib"),
        ({"paths": ["models"]}, "an absolute path"),
        ({"paths": ["/"]}, "an absolute path"),
        ({"paths": ["/srv/../etc"]}, "an absolute path"),
        ({"paths": ["/srv/./a"]}, "an absolute path"),
        ({"paths": ["/srv/a b"]}, "an absolute path"),
        ({"paths": ["/srv", "/srv/models"]}, "/srv/models is within /srv"),
        ({"paths": ["/srv", "/srv"]}, "/srv is within /srv"),
        ({"repository": "rest:https://me:secret@backup.example/"}, "without a password in it"),
        ({"repository": "ftp://backup.example/"}, "a repository of restic"),
        ({"environment": {}}, "RESTIC_PASSWORD"),
        ({"environment": {"AWS_ACCESS_KEY_ID": "key"}}, "RESTIC_PASSWORD"),
        ({"environment": {"RESTIC_PASSWORD": "restic", "LD_PRELOAD": "x"}}, "AWS_ACCESS_KEY_ID"),
        ({"environment": {"RESTIC_PASSWORD": "restic", "RESTIC_PASSWORD_COMMAND": "x"}}, "AWS_ACCESS_KEY_ID"),
    ],
)
def test_what_can_not_be_saved_or_would_leak_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        parsed(**changes)


def test_images_are_bound_to_what_was_saved() -> None:
    less, more = parsed(), parsed(images=["docker.io/library/engine:v1"])
    assert less is not None
    assert more is not None
    assert less.digest != more.digest
    assert more.saved_paths == (*less.saved_paths, "/var/lib/reconciler/images")


def test_paths_that_only_begin_alike_are_two() -> None:
    assert parsed(paths=["/srv/a", "/srv/ab"]) is not None
