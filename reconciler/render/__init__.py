"""Values to text: human, JSON and Markdown. Pure; every string of a BMC or a node is untrusted and escaped.

text       values, names, durations and escapes that all forms share
tables     plain-text tables
pen        Markdown that fits into a comment, and that no machine's words break
comment    reports as comments: plan_comment, drift and outcome say what stands in them, headline what stands above
drift      the drift report
plan       the plan
outcome    what an apply did
explain    one node, in full: explanation (its values), explain_values, explain_actions, explain_waiting, waiting
progress   events of a running pass, live on a terminal or as plain lines
"""
