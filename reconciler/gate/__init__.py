"""Acceptance: a node serves only with positive evidence (DESIGN 7.4).

certificate   what a certificate binds, and whether one is valid today
"""
