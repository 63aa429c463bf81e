"""The acceptance gate: a node serves only with positive evidence (DESIGN 7.4).

tools         one module for each tool: its commands, and the judge of its output
certificate   what a certificate binds, and whether one is valid today
asked         the tests as values of the spec, and what stored metrics lack of those that have changed
lock          that one gate at a time runs on a node
cohort        a node against its peers, and against its own first certificate
fabric        tests of the network between nodes, and which part of it is at fault
evidence      which metrics a pass of each tool must have
trust         whether an image is the one that its publisher signed
"""
