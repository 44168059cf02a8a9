"""Why there is no verdict. None of these says anything about a program; never score them.

VerifierError
|-- RequestRefusedError        the request is wrong (INVALID_ARGUMENT); mend it, a retry is useless
|-- VerifierUnavailableError   no answer within the client's patience; mask the sample or wait longer
`-- VerifierDefectError        the service failed on this request twice; mask the sample and report it
"""


class VerifierError(Exception):
    """Base of all errors of the client."""


class RequestRefusedError(VerifierError, ValueError):
    """The service refused a field of the request; the message names it."""


class VerifierUnavailableError(VerifierError):
    """The service was not reachable, not ready, or too busy for longer than the client waits."""


class VerifierDefectError(VerifierError):
    """The service answered INTERNAL or an unknown status, also when asked again."""
