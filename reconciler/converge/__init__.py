"""The async shell around the planner: it observes, acts and observes again, only through the Protocols of model/ports.

observe            reads nodes; a result for every node
observation_pass   what an observation teaches the ledger, and the plan that follows; used by every command
apply              one run: the lease, one full observation, then work on every node that may go
loop, leader_term  `reconciler run`: pass after pass while the lease is held
dispatcher         which nodes are worked on now
fleet_limits       what budget, windows, rollouts and caps of isolation allow one node to do
execute, attempt   the work on one node, and one attempt at one action
actions/           one function per action of the planner's catalogue
guarded_ports      the ports with deadlines, and no write before identity is proved
gate               runs the acceptance tests
approval           whether an approved plan still covers what a node needs
leftovers          attempts that never ended, our marks on nodes that left the spec
adoption           takes over nodes that another ledger has marked
lease              acquired, renewed and released
events             what a run reports meanwhile
"""
