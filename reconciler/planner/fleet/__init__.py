"""Planning of the fleet: which nodes may be worked on now, which later, and why.

budget, budget_group, hours, windows   limits on how many nodes are out of service, and when
rollouts, rollout_member               waves of a change of the spec
guards, gate_forecast                  what refuses a plan; which nodes would fail changed tests
storm, observer_outage                 what stops all disruption, or every conclusion
isolation, signal_history              evidence of illness, and since when it is seen
permit, live_permit                    whether a node may begin now; kept current during a run
work_queue                             the order of nodes, and who goes: of a plan and of a run
simulation, timeline                   who goes later, and when
plan_request, planner                  a fleet's plan: its inputs, and the document
revisions, spec_change, moved_bars     what a change of the spec does
period_report                          the sums of a past period
"""
