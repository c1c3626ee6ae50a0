"""Whether the server in this container is ready: exits with 0 where /readyz says so.

It goes by the variables that the server goes by, and believes no certificate but the server's own.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys

TIMEOUT = 6.0


def ready(host: str, port: int, certificate: str | None) -> bool:
    """Whether the server that listens there can take what it is for."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    if certificate is None:
        connection = http.client.HTTPConnection(here, port, timeout=TIMEOUT)
    else:
        own = ssl.create_default_context(cafile=certificate)
        own.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        own.check_hostname = False  # it is for the name that others know the server by
        connection = http.client.HTTPSConnection(here, port, timeout=TIMEOUT, context=own)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    said = os.environ.get
    listening = said("SHUFFLESUM_HOST", "127.0.0.1"), int(said("SHUFFLESUM_PORT", "8080"))
    sys.exit(not ready(*listening, said("SHUFFLESUM_TLS_CERT")))
