"""Plan the fleet: whom budget, rollouts, windows, holds and the storm brake let go, and in which order.

budget, rollouts, windows, guards   the limits
schedule                            who may go now, by all of them
queue, timeline                     who goes later, and when
isolation, storm                    evidence of illness, node by node and all at once
planner                             the plan of a fleet: the document
"""
