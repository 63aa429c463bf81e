"""Plan one node: find the fewest actions that lead from its conditions to its goal.

conditions      names the conditions of a node: each is true, false or unknown, with its reason
assessment      judges the conditions that do not depend on drift
evaluate        adds the conditions that drift decides
corroboration   combines several sources: identity, host_down, a boot that hangs
record          reads a node's earlier attempts: drained, isolated, treated
staged          finds what waits for a restart, in the node's earlier attempts
actions         specifies the actions: the only list of them
catalogue       expands the actions for one node
goals           chooses the node's goal: the first situation that matches
search          finds the cheapest actions from the conditions to the goal
reasons         says what each action is for, and what prevents a goal
planner         makes the plan of one node

Nothing here knows of other nodes: budgets, rollouts and windows are planned in `planner.fleet`.
"""
