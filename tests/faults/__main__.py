"""`python -m tests.faults matrix` prints the end of every fault with every action; `seed N` runs one schedule."""

from __future__ import annotations

import argparse
import sys
import time

from tests.faults.cells import play
from tests.faults.cluster_matrix import CLUSTER, SERVING, Lives
from tests.faults.matrix import LETTERS, ROWS, SCENES, differences
from tests.faults.rollout import roll_out
from tests.faults.schedule import draw
from tests.faults.schedule_run import failure_report, run_schedule


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description="Run faults on a simulated fleet and check the invariants."
    )
    what = parser.add_subparsers(dest="what", required=True)
    seed = what.add_parser("seed", help="run the schedule of a seed and print its log")
    seed.add_argument("number", type=int)
    seed.add_argument("--short", action="store_true", help="print only the shortest schedule that breaks an invariant")
    seeds = what.add_parser("seeds", help="run so many seeds and print those that break an invariant")
    seeds.add_argument("count", type=int)
    seeds.add_argument("--first", type=int, default=0)
    matrix = what.add_parser(
        "matrix", help="run every fault with every action; with both given, print the log of one cell"
    )
    matrix.add_argument("--fault", default="", help="the beginning of the fault's name")
    matrix.add_argument("--action", default="", choices=["", *SCENES])
    rollout = what.add_parser("rollout", help="roll out an image to many nodes, of which a share fails")
    rollout.add_argument("--nodes", type=int, default=500)
    rollout.add_argument("--out", type=int, default=50, help="the budget")
    rollout.add_argument("--rate", type=float, default=0.02, help="share of nodes on which some action fails")
    rollout.add_argument("--seed", type=int, default=1)
    rollout.add_argument("--loop", action="store_true", help="use the loop instead of repeated applies")
    for lives, of in ((CLUSTER, "a K3s cluster's life"), (SERVING, "a serving group's rebuild")):
        one = what.add_parser(lives.name, help=f"kill runs of {of} after each kind of call")
        one.add_argument("--stage", choices=lives.stages, help="all if left out")
        one.add_argument("--update", action="store_true", help="write the table of the documentation")
        one.set_defaults(lives=lives)
    given = parser.parse_args()
    if "lives" in given:
        return _lives(given.lives, given.stage, update=given.update)
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
            print("\n".join([f"{row.name}, as {action} begins", *one.log, one.says, *one.wrong, one.end, ""]))
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


def _lives(lives: Lives, stage: str | None, *, update: bool) -> int:
    began, found = time.process_time(), lives.undisturbed()
    cells = [cell for name, some in found.items() if stage in (None, name) for cell in some]
    results = list(lives.played(cells))
    lines = lives.table(results)
    print("\n".join(lines))
    broken = [one for one in results if one.wrong]
    print(f"\n{len(results)} runs killed, {len(broken)} went wrong; {time.process_time() - began:.0f}s of CPU")
    for one in broken:
        print(f"{', '.join(one.place)}, after call {one.at} ({one.point.call}): {'; '.join(one.wrong)}")
    if update and stage is None:
        lives.write(lines)
    return 1 if broken else 0


def _seed(number: int, *, short: bool) -> int:
    if short and (log := failure_report(draw(number))):
        print(log)
        return 1
    result = run_schedule(draw(number))
    print(result)
    return 1 if result.broken else 0


def _seeds(numbers: range) -> int:
    began, broken, runs, actions = time.process_time(), 0, 0, 0
    for number in numbers:
        result = run_schedule(draw(number))
        runs, actions = runs + result.runs, actions + result.actions
        if result.broken:
            broken += 1
            print(f"seed {number}: {result.broken}", flush=True)
    seconds = time.process_time() - began
    print(f"{len(numbers)} seeds, {broken} break something; {runs} runs, {actions} actions; {seconds:.0f}s of CPU")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
