"""Tests of the network between nodes, and which part is at fault: values in, values out (DESIGN 7.4).

topology   nodes, rails, groups of nodes that share leaves, and the parts that a verdict may name
results    what a test of two nodes measured, and which rails were low
rounds     which nodes test with one another, round after round
blame      the statistics: how far the results speak against each part
tally      runs by node and partner, as blame counts them
evidence   all results so far, each round counted once
diagnose   from all results so far to the next round, or to the verdict
measured   from what tests over the wire measure, and what they can't tell
routes     which spine the flows of a pair take, where the subnet tells it
rail_by_rail one figure of each rail, where they are tested one by one
across     what joins the leaves, where all runs together show it
uplinks    which cable between a leaf and a spine, where routes are known
rows       what a search measured, as rows of the ledger
still_open which parts are held for faulty, over several searches
bisect     the verdict on tests that a whole group takes together
partners   with which node a gate tests, and how long it holds it
pair_verdict  what a gate makes of its tests with partners

docs/explanation/fabric.md tells how it works and how well.
"""
