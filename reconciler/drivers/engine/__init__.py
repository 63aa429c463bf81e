"""Nodes are read by the workers of an existing engine, Dask distributed, which are beside them (docs/how-to/engine.md).

access     the address of the scheduler and the certificates of the trust domain
answers    what a worker says of its shard: the values that the leader does not know yet
observer   the side of the leader: gives each shard to one worker of its site, and waits no longer than it has to
workers    what the scheduler says of its workers, and which of them have died or hang
worker     the side of a worker: a plugin with the drivers of its site

Only reads are tasks: a task may run twice. `access` is all that is imported before an engine is asked for.
"""
