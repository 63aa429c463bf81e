"""Turn drift into ordered actions: `node` plans one node, `fleet` decides who may go and when.

Everything here is pure; `now` is an argument.
"""
