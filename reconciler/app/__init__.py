"""The use cases that the command line, the service and CI share: observe, plan, apply, adopt, rehearse, report.

This is the only package that joins drivers to converge. Parsing, printing and exit codes belong to `cli`.
"""
