"""The use cases that the command line, the service and CI share: observe, plan, apply, adopt, rehearse, report.

The only place that joins drivers to converge. What is typed, printed and exited with is `cli`'s.
"""
