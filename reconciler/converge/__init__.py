"""The async shell around the planner: it looks, acts and looks again, through the Protocols of model/ports alone.

observe     one pass over nodes; a result for every node
apply       the lease, one full observation, then every node that may go
crew        which nodes are worked on now, under the budget
execute     one node's way to its goal
actions/    one function per row of the planner's catalogue
guard       the ports with deadlines, and no write before identity is proved
gate        runs the acceptance tests
adoption    nodes that another ledger has marked
approval    whether a plan still holds for a node
leftovers   attempts that never ended, marks on forgotten nodes
memory      what a pass teaches the ledger
lease       taken, kept alive, dropped
events      what is told meanwhile
"""
