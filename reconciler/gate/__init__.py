"""Acceptance: a node serves only with positive evidence (DESIGN 7.4).

tools         one module per tool: the commands it runs and the judge of what it printed
certificate   what a certificate binds, and whether one is valid today
trust         whether an image is what its publisher signed
"""
