"""Values as text for people, as Markdown and as HTML. Pure; every string of a BMC or a node is untrusted and escaped.

text       values, names, durations and escapes that all forms share
tables     plain-text tables
markdown   Markdown that fits into a comment, and that no text of a machine breaks
comment    reports as comments: plan_comment, drift and outcome make their content, headline their first line
disclosure who may read a field; publish, restore: published observations; redact: documents without names of machines
drift      the drift report
plan       the plan
outcome    what an apply did
explain    one node, in full: explanation (its values), explain_values, explain_actions, explain_waiting, waiting
progress   events of a running pass, live on a terminal or as plain lines
"""
