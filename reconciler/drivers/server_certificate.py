"""The certificate of a server that BMCs and installers call, from the secrets file."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import Final

from reconciler.drivers.secrets import SecretStore
from reconciler.model.errors import DriverError, Failure

# RFC 7919's ffdhe2048: firmware that was built without elliptic curves (edk2, until 2023) boots over HTTPS by it alone.
_FFDHE2048: Final = """\
-----BEGIN DH PARAMETERS-----
MIIBCAKCAQEA//////////+t+FRYortKmq/cViAnPTzx2LnFg84tNpWp4TZBFGQz
+8yTnc4kmz75fS/jY2MMddj2gbICrsRhetPfHtXV/WVhJDP1H18GbtCFY2VVPe0a
87VXE15/V8k1mE8McODmi3fipona8+/och3xWKE2rec1MKzKT0g6eXq8CrGCsyT7
YdEIqUuyyOP7uWrat2DX9GgdT0Kj3jlN9K5W7edjcrsZCwenyO4KbXCeAvzhzffi
7MA0BM0oNC9hkXL+nOmFg/+OTxIy7vKBg8P+OxtMb61zO7X8vC7CIAXFjvGDfRaD
ssbzSibBsu/6iGtCOGEoXJf//////////wIBAg==
-----END DH PARAMETERS-----
"""


class ServerCertificate:
    """A TLS context, and the names of the secrets that it is loaded from. `field`: of the Fleet, that names them.

    `context`: None without a certificate, and before the first `load`.
    """

    def __init__(self, certificate: str | None, key: str | None, secrets: SecretStore, field: str) -> None:
        self._names = (certificate, key or certificate)
        self._secrets = secrets
        self._field = field
        self.context: ssl.SSLContext | None = None

    def read(self) -> tuple[str, str] | None:
        """Return certificate and key as they are now. A program that prints one may take half a minute.

        Raise SecretError when they can't be read.
        """
        certificate, key = self._names
        if certificate is None or key is None:
            return None
        first, second = (self._secrets.resolve(name, fresh=True).reveal() for name in (certificate, key))
        return first, second

    def load(self) -> None:
        """Read and use them, again too. Raise SecretError or DriverError when they can't be used."""
        self.use(self.read())

    def use(self, texts: tuple[str, str] | None) -> None:
        """Give connections from now on this certificate and key. Raise DriverError when they are none.

        Call it where connections are accepted: OpenSSL's contexts may not be changed by another thread.
        """
        if texts is None:
            return
        if self.context is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
        else:
            context = self.context
        with tempfile.TemporaryDirectory(prefix="reconciler-tls-") as folder:  # OpenSSL reads files alone
            parameters = Path(folder) / "dh.pem"
            files = Path(folder) / "chain.pem", Path(folder) / "key.pem"
            for file, text in zip((*files, parameters), (*texts, _FFDHE2048), strict=True):
                file.write_text(text)
            context.load_dh_params(str(parameters))
            try:
                context.load_cert_chain(*files)
            except (ssl.SSLError, OSError):
                names = f"{self._field}.certificate and {self._field}.key"
                why = f"{names} of the Fleet are no certificate chain and its key in PEM"
                raise DriverError(Failure.REJECTED, why) from None
        self.context = context
