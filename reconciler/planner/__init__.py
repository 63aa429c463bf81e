"""From drift to ordered actions.

conditions   what is true, false or unknown of a node, and why
staged       what waits for a restart, from our own attempts
witnesses    what sources say together: identity, host_down, a boot that hangs
catalogue    the actions: one table, expanded per node
search       the fewest actions from conditions to goal
goals        which goal a node has: goals by situation, first match
node         the plan of one node
budget       who may be out of service now
fleet        the plan of a fleet: the document

Everything here is pure; `now` is an argument.
"""
