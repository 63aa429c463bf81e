"""`python -m tests.faults matrix` prints what comes of every fault with every action; `seed N` tells one story."""

from __future__ import annotations

import argparse
import sys
import time

from tests.faults.cells import play
from tests.faults.life import live, told
from tests.faults.matrix import LETTERS, ROWS, SCENES, differences
from tests.faults.rollout import roll_out
from tests.faults.schedule import draw


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="What faults do to a fleet.")
    what = parser.add_subparsers(dest="what", required=True)
    seed = what.add_parser("seed", help="play what this seed draws, and tell all that happens")
    seed.add_argument("number", type=int)
    seed.add_argument("--short", action="store_true", help="what breaks, with what can't be left out alone")
    seeds = what.add_parser("seeds", help="play so many, and tell of those that break something")
    seeds.add_argument("count", type=int)
    seeds.add_argument("--first", type=int, default=0)
    matrix = what.add_parser("matrix", help="play every fault with every action; with both given, tell one's story")
    matrix.add_argument("--fault", default="", help="the beginning of its name")
    matrix.add_argument("--action", default="", choices=["", *SCENES])
    rollout = what.add_parser("rollout", help="a new image for many nodes, of which a share fails")
    rollout.add_argument("--nodes", type=int, default=500)
    rollout.add_argument("--out", type=int, default=50, help="the budget")
    rollout.add_argument("--rate", type=float, default=0.02, help="share of nodes on which some action fails")
    rollout.add_argument("--seed", type=int, default=1)
    rollout.add_argument("--loop", action="store_true", help="driven by the loop, not by one apply after another")
    given = parser.parse_args()
    if given.what == "rollout":
        print(found := roll_out(given.nodes, given.out, given.rate, given.seed, loop=given.loop))
        return 1 if found.wrong else 0
    if given.what == "matrix":
        return _matrix(given.fault, given.action)
    if given.what == "seed":
        return _seed(given.number, short=given.short)
    return _seeds(range(given.first, given.first + given.count))


def _matrix(fault: str, action: str) -> int:
    rows = [row for row in ROWS if row.name.startswith(fault)]
    if fault and action:
        for row in rows:
            one = play(SCENES[action], row.fault)
            print("\n".join([f"{row.name}, as {action} begins", *one.story, one.says, *one.wrong, one.end, ""]))
        return 0
    width, wrong = max(len(row.name) for row in rows) + 2, []
    for at, name in enumerate(SCENES):
        print(f"{'':{width}}{'| ' * at}{name}")
    for row in rows:
        found = list(differences(row))
        print(f"{row.name:{width}}{' '.join(played.end for _, played, _ in found)}", flush=True)
        wrong += [f"{row.name} x {name}: {why}" for name, _, why in found if why]
    print("", *(f"{letter}  {meaning}" for letter, meaning in LETTERS.items()), "", sep="\n")
    print(*wrong or [f"all {len(rows) * len(SCENES)} as they must be"], sep="\n")
    return 1 if wrong else 0


def _seed(number: int, *, short: bool) -> int:
    if short and (story := told(draw(number))):
        print(story)
        return 1
    lived = live(draw(number))
    print(lived)
    return 1 if lived.broken else 0


def _seeds(numbers: range) -> int:
    began, broken, runs, actions = time.process_time(), 0, 0, 0
    for number in numbers:
        lived = live(draw(number))
        runs, actions = runs + lived.runs, actions + lived.actions
        if lived.broken:
            broken += 1
            print(f"seed {number}: {lived.broken}", flush=True)
    seconds = time.process_time() - began
    print(f"{len(numbers)} seeds, {broken} break something; {runs} runs, {actions} actions; {seconds:.0f}s of CPU")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
