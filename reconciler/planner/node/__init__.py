"""Plan one node: the fewest actions from what holds of it to its goal.

conditions      what is true, false or unknown of a node, and why
assessment      what holds of a node whatever its drift is
corroboration   what sources say together: identity, host_down, a boot that hangs
staged          what waits for a restart, from our own attempts
catalogue       the actions: one table, expanded per node
search          the fewest actions from conditions to goal
goals           which goal a node has: goals by situation, first match
planner         the plan of one node

Nothing here knows of other nodes: budgets, rollouts and windows are planned in `planner.fleet`.
"""
