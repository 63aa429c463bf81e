"""The spec of a fleet that has none: written from what its nodes are, so that it asks for nothing else.

survey   what was observed of a node, in the words of a spec
kinds    which nodes are alike: profiles, personas, pools, and what single nodes have otherwise
text     the files, as a person would write them; pools and lines are parts of it

All of it is pure.
"""
