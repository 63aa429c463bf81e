"""Serve `run`'s API, page, probes and metrics over HTTP.

access        who may read and who may write, and on which addresses anybody may listen at all
application   the FastAPI application: routes by their role, errors as problem documents, headers
reads, writes the routes of /api/v1
stream        server-sent events: one cursor in the journal for each client
server        uvicorn, on a thread of its own: a slow client delays no call to a BMC
"""
