"""The two scripts of an exchange with the TPM (gate/attestation/host.py), which sh runs on a host."""

from __future__ import annotations

from reconciler.gate.attestation.buffers import Malformed
from reconciler.gate.attestation.host import begin_command, finish_command
from reconciler.lab.hardware.tools.call import Call, Ran, done, failed
from reconciler.model.install import AttestationChallenge, dump_contract

# tpm2-tools 5.4 on a machine without a TPM.
_NO_TPM = """\
ERROR:tcti:src/tss2-tcti/tctildr.c:428:Tss2_TctiLdr_Initialize_Ex() Failed to instantiate TCTI
ERROR: Could not load tcti, got: "device:/dev/tpmrm0"
"""
_BEGIN = begin_command()[2]
_FINISH = finish_command(AttestationChallenge(credential="", secret="", nonce=""))[2]


def attestation_script(call: Call) -> Ran | None:
    """Run one of the two scripts, as `sh -c SCRIPT ...`; None for any other script."""
    match call.args:
        case ("-c", script) if script == _BEGIN and call.machine.fault("tpm_gone") is not None:
            return failed(1, _NO_TPM)
        case ("-c", script) if script == _BEGIN:
            return done(dump_contract(call.machine.tpm_keys()) + "\n", seconds=5.0)
        case ("-c", script, "sh", credential, secret, nonce) if script == _FINISH:
            given = AttestationChallenge(credential=credential, secret=secret, nonce=nonce)
            try:
                answer = call.machine.tpm_answer(given, call.machine.own_host_key())
            except Malformed:
                return failed(1, "ERROR: Esys_ActivateCredential(0x18B) - tpm:handle(1):the handle is not correct\n")
            return done(dump_contract(answer) + "\n", seconds=2.0)
        case _:
            return None
