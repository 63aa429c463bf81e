"""Signals of bad health, their consequences, and the next rung of the remediation ladder.

xids      the catalogue of XID and SXid codes
parts     signals of a GPU, the RDMA ports and a drive
bmc       signals of the BMC
signals   all signals of an observation
finding   their cause, with what was ruled out
table     what each signal leads to: isolation, repair or a report
ladder    the next rung, from the policy and past attempts
"""
