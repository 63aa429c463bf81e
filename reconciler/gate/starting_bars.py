"""Published figures by GPU model, as sourced bars to begin with: starting_bars.yaml, reviewed like code.

A bar is a figure that one of our tests measures as it was published: of the same scope and message size. What a figure
says of anything else is not known, so the table refuses arguments that would measure something else, and a figure
without arguments never becomes a bar.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from pydantic import Field, model_validator

from reconciler.model.errors import UsageError
from reconciler.model.gate_arguments import between_nodes, listed
from reconciler.model.gate_tools import TOOLS, measured
from reconciler.strict_yaml.models import Model, Text
from reconciler.strict_yaml.read import InvalidFile, model_of

FILE: Final = "starting_bars.yaml"
OF_THE_TOOL: Final = "that of the tool"
_ONE_NODE: Final = re.compile(r"one node of [0-9]+ GPUs")
_COLLECTIVES: Final = frozenset({"nccl-tests", "rccl-tests"})


class Figure(Model):
    """A figure that somebody published. `args`: our test of that very thing; None says in `because` why there is none.

    `scope`: over what it was measured. `size`: of a message.
    """

    model: Text
    tool: Text
    metric: Text
    value: float = Field(gt=0)
    unit: Text
    scope: Text
    size: Text
    source: Text
    args: Mapping[str, str] | None = None
    because: Text | None = None

    @model_validator(mode="after")
    def _is_a_bar_or_says_why_not(self) -> Figure:
        if (self.args is None) is (self.because is None):
            raise ValueError("has either args, by which our test measures it, or because, which says why none does")
        if self.args is not None and (why := self._measures_something_else(self.args)):
            raise ValueError(f"no bar for {self.scope}, {self.size}: {why}")
        return self

    def _measures_something_else(self, args: Mapping[str, str]) -> str:
        row = TOOLS.get(self.tool)
        if row is None or any(name not in row.arguments or row.arguments[name].check(args[name]) for name in args):
            return f"{self.tool} has no such arguments"
        if not row.measures(self.metric) or measured(self.tool, self.metric, (self.metric,))[2] != self.unit:
            return f"{self.tool} does not measure {self.metric} in {self.unit}"
        if between_nodes(args) or not _ONE_NODE.fullmatch(self.scope):
            return "the test runs on one node, and the figure has to say of how many GPUs"
        if self.tool in _COLLECTIVES:
            same = args.get("minBytes") == args.get("maxBytes") == self.size and "collective" in args
            return "" if same else "the test has to run that size alone, and to name its collective"
        if self.tool == "nvbandwidth":
            same = self.size == OF_THE_TOOL and self.metric in [f"{case}.min" for case in _cases(args)]
            return "" if same else "the worst copy of a test case that it runs has to be the metric"
        return f"what {self.tool} measures by itself is not known to be of that size"


def _cases(args: Mapping[str, str]) -> tuple[str, ...]:
    return listed(args.get("testcases", ""))


class StartingBars(Model):
    """`models`: by model, the product names that GPUs of it tell."""

    models: Mapping[str, tuple[Text, ...]]
    figures: tuple[Figure, ...]

    @model_validator(mode="after")
    def _consistent(self) -> StartingBars:
        if unknown := {one.model for one in self.figures} - self.models.keys():
            raise ValueError(f"no such model: {', '.join(sorted(unknown))}")
        bars = [(one.model, one.tool, one.metric, one.scope, one.size) for one in self.figures if one.args is not None]
        if twice := next((bar for bar in bars if bars.count(bar) > 1), None):
            raise ValueError(f"two bars for {' '.join(twice)}")
        return self

    def model_named(self, name: str) -> str:
        """Return the model of this name, or of a GPU with this product name. Raise UsageError that names all models."""
        found = self.model_of_gpu(name)
        if found is None:
            known = {_key(model): model for model in self.models}
            if (found := known.get(_key(name))) is None:
                raise UsageError(f"there are no bars for a GPU {name!r}; the models are {', '.join(self.models)}")
        return found

    def model_of_gpu(self, product: str) -> str | None:
        """Return the model of GPUs that call themselves so."""
        return next((model for model, names in self.models.items() if product in names), None)

    def of(self, model: str) -> tuple[Figure, ...]:
        return tuple([one for one in self.figures if one.model == model])


def _key(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).casefold()


@cache
def packaged() -> StartingBars:
    """Return the table of this version."""
    found = pkgutil.get_data(__package__, FILE)
    if found is None:
        raise InvalidFile(f"{FILE}: is not in the package")
    return model_of(StartingBars, found.decode(), f"{__package__}/{FILE}")
