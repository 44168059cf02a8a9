"""Why there is no verdict. None of these says anything about a program; never score them.

VerifierError
|-- RequestRefusedError        the request is wrong (INVALID_ARGUMENT); mend it, a retry is useless
|-- VerifierUnavailableError   no answer within the client's patience; wait longer
|-- VerifierTimeoutError       this request exceeded its deadline several times; mask the sample
`-- VerifierDefectError        the service failed on this request twice; mask the sample and report it
"""


class VerifierError(Exception):
    """Base of all errors of the client."""


class RequestRefusedError(VerifierError, ValueError):
    """The service refused a field of the request; the message names it."""


class VerifierUnavailableError(VerifierError):
    """The service was not reachable, not ready, or too busy for longer than the client waits."""


class VerifierTimeoutError(VerifierError):
    """The service is there, but this request exceeded the client's deadline again and again."""


class VerifierDefectError(VerifierError):
    """The service answered INTERNAL or an unknown status, also when asked again."""
