"""The exchange over SSH: what a booted host runs with tpm2-tools to show its keys and to answer a challenge.

The keys of an exchange are made for it, in the TPM, and end with it: nothing must be left by an installer, and a TPM's
few handles stay free. Both scripts print one document of the install contract. They are for POSIX sh, and need root.
"""

from __future__ import annotations

from typing import Final

from reconciler.model.install import AttestationBegin, AttestationChallenge, AttestationFinish, load_contract

BEGIN_S, FINISH_S = 240.0, 60.0  # of wall-clock time; a TPM takes up to a minute for an RSA key
QUOTED: Final = "0,1,2,3,4,5,6,7,8,9,11,12,14"

# TPMs keep the certificate of an RSA key at 0x01c00002, of an ECC key at 0x01c0000a (TCG EK Credential Profile).
_BEGIN: Final = """
set -eu
umask 077
rm -rf "$WORK" && mkdir -p "$WORK" && cd "$WORK"
kind=rsa scheme=rsa2048:rsassa-sha256:null
tpm2_nvread 0x1c00002 -o ek.crt 2>nvread.err ||
    if tpm2_nvread 0x1c0000a -o ek.crt 2>nvread.err; then
        kind=ecc scheme=ecc256:ecdsa-sha256:null
    else
        rm -f ek.crt
    fi
tpm2_createek -G "$kind" -c ek.ctx -u ek.pub >create.out
tpm2_flushcontext -t 2>flush.err || :
tpm2_startauthsession --policy-session -S session >session.out
tpm2_policysecret -S session -c e >session.out
tpm2_create -C ek.ctx -P session:session -G "$scheme" -g sha256 -a "$ATTRIBUTES" -u ak.pub -r ak.priv >create.out
tpm2_flushcontext -t 2>flush.err || :
tpm2_policysecret -S session -c e >session.out
tpm2_load -C ek.ctx -P session:session -u ak.pub -r ak.priv -c ak.ctx >create.out
tpm2_flushcontext session 2>flush.err
tpm2_flushcontext -t 2>flush.err || :
printf '{"ek":"%s","ak":"%s"' "$(base64 -w0 <ek.pub)" "$(base64 -w0 <ak.pub)"
[ ! -s ek.crt ] || printf ',"ek_cert":"%s"' "$(base64 -w0 <ek.crt)"
printf '}\\n'
"""

# "noda", which tpm2_createak leaves out: a TPM counts each loss of power after the use of a key without it as a wrong
# password, and after three (a machine that was switched off by force, or crashed) it refuses such keys for hours.
# Source: TPM 2.0 Library part 1, 19.8 (dictionary attack protection); swtpm and tpm2-tools 5.4 do so.
ATTESTATION_KEY: Final = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|noda|restricted|sign"

# The blob is what tpm2_activatecredential reads: a magic number, a version, and the two structures.
_FINISH: Final = """
set -eu
umask 077
cd "$WORK"
key=$(cat "$KEY")
{ printf '\\272\\334\\300\\336\\000\\000\\000\\001'; printf %s "$1" | base64 -d; printf %s "$2" | base64 -d; } >blob
tpm2_startauthsession --policy-session -S session >session.out
tpm2_policysecret -S session -c e >session.out
tpm2_activatecredential -c ak.ctx -C ek.ctx -i blob -o secret -P session:session >activate.out
tpm2_flushcontext session 2>flush.err
data=$({ printf %s "$3" | base64 -d; printf %s "$key"; } | sha256sum | cut -d' ' -f1)
tpm2_quote -c ak.ctx -l "sha256:$PCRS" -q "$data" -m quote -s signature -o pcrs -F values -g sha256 >quote.out
tpm2_flushcontext -t 2>flush.err || :
printf '{"secret":"%s","quote":"%s"' "$(base64 -w0 <secret)" "$(base64 -w0 <quote)"
printf ',"signature":"%s","host_key":"%s","pcrs":{' "$(base64 -w0 <signature)" "$key"
values=$(od -An -v -tx1 pcrs | tr -d ' \\n')
comma=
for pcr in $(echo "$PCRS" | tr , ' '); do
    rest=${values#????????????????????????????????????????????????????????????????}
    printf '%s"%s":"%s"' "$comma" "$pcr" "${values%"$rest"}"
    values=$rest comma=,
done
printf '},"event_log":"%s"}\\n' "$(base64 -w0 <"$LOG")"
cd / && rm -rf "$WORK"
"""

_PLACES: Final = {
    "WORK": "/run/reconciler-attestation",
    "KEY": "/etc/ssh/ssh_host_ed25519_key.pub",
    "LOG": "/sys/kernel/security/tpm0/binary_bios_measurements",
    "PCRS": QUOTED,
    "ATTRIBUTES": ATTESTATION_KEY,
}


def begin_command(**places: str) -> tuple[str, ...]:
    """Return the command that makes the keys. `places`: other files than those of a host: WORK, KEY, LOG, PCRS."""
    return ("sh", "-c", _with(places, _BEGIN))


def finish_command(challenge: AttestationChallenge, **places: str) -> tuple[str, ...]:
    """Return the command that answers a challenge with the keys that `begin_command` made."""
    return ("sh", "-c", _with(places, _FINISH), "sh", challenge.credential, challenge.secret, challenge.nonce)


def read_begin(text: str) -> AttestationBegin:
    """Raise ContractError unless the text is what `begin_command` prints."""
    return load_contract(AttestationBegin, text)


def read_finish(text: str) -> AttestationFinish:
    """Raise ContractError unless the text is what `finish_command` prints."""
    return load_contract(AttestationFinish, text)


def _with(places: dict[str, str], script: str) -> str:
    return "".join(f"{name}='{value}'\n" for name, value in {**_PLACES, **places}.items()) + script.strip()
