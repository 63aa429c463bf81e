"""The fixtures of the command line's tests: settings of nobody else, and observations from files."""

from __future__ import annotations

from tests.cli.conftest import _nobody_elses_settings, clean, demo, observations

__all__ = ["_nobody_elses_settings", "clean", "demo", "observations"]
