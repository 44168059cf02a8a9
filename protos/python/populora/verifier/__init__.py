"""The verifier's contract for Python: generated stubs in `v1`, and a client that never turns trouble into a score."""

from populora.verifier.client import VerifierClient
from populora.verifier.errors import (
    RequestRefusedError,
    VerifierDefectError,
    VerifierError,
    VerifierTimeoutError,
    VerifierUnavailableError,
)

__all__ = [
    "RequestRefusedError",
    "VerifierClient",
    "VerifierDefectError",
    "VerifierError",
    "VerifierTimeoutError",
    "VerifierUnavailableError",
]
