"""Workers of an existing engine, Dask distributed, read and plan the nodes beside them (docs/how-to/engine.md).

access     the address of the scheduler and the certificates of the trust domain
client     the connection of the leader: gives each task to one worker of its site, and waits no longer than it has to
answers    what a worker says of its shard: the values that the leader does not know yet
plans      how nodes to plan and their plans travel
runs       runs of a rehearsal, for workers of any site
observer   the side of the leader: an Observer, and a ShardPlanner
workers    what the scheduler says of its workers, and which of them have died or hang
worker     the side of a worker: a plugin with the drivers of its site

Only reads and pure functions are tasks: a task may run twice. `access` is all that is imported before an engine is
asked for.
"""
