"""Attestation: the proof, signed by a node's TPM, of what the node booted. Pure: bytes in, judgements out.

Components like GPUs prove what they run by signatures of their own, which the BMC hands on.

    endorsement.py   certificates of endorsement keys, against the CAs that the spec declares
    credential.py    the challenge that only the TPM of an endorsement key opens
    quote.py         the signed statement of a TPM about its PCRs
    event_log.py     the firmware's log, which explains the PCRs
    judge.py         what a quote and its log prove, against what the spec declares
    spdm.py          the transcript of measurements that a component signed
    certificate_chain.py  the chain of its key, up to the CAs that the spec declares
    components.py    what a component proves, against what the spec declares

Everything read here comes from a node that is not trusted yet. What does not parse raises Malformed, and nothing else.
"""
