"""Write reconciler/health/signals.json anew from signals.yaml: `python -m tests.health.compiled`, or `make signals`.

Every command reads the table. Reading YAML with positions takes 90 ms, reading JSON one; people write the YAML.
"""

from __future__ import annotations

import json
from pathlib import Path

from reconciler.spec.kinds.signals import SignalTable
from reconciler.spec.signals import COMPILED, FILE
from reconciler.strict_yaml.parse import parse_yaml
from reconciler.strict_yaml.read import model_of

FOLDER = Path(__file__).resolve().parents[2] / "reconciler" / "health"


def compiled(text: str) -> str:
    """Return the table as JSON. Raise InvalidFile, with the places of its errors, for one that breaks a rule."""
    model_of(SignalTable, text, FILE)
    documents, _ = parse_yaml(text, FILE)
    return json.dumps(documents[0].data, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    text = (FOLDER / FILE).read_text(encoding="utf-8")
    (FOLDER / COMPILED).write_text(compiled(text), encoding="utf-8")


if __name__ == "__main__":
    main()
