"""Failures that are not a program's fault.

ServiceError
|-- InvalidRequestError   the caller's mistake        -> INVALID_ARGUMENT
|-- QueueFullError        bounded queue is full       -> RESOURCE_EXHAUSTED with RetryInfo
|-- NotReadyError         starting or draining        -> UNAVAILABLE
|-- SandboxError          the jail machinery failed   -> UNAVAILABLE (a retry may succeed)
`-- SetupError            the service cannot start    -> process exit status 2, message says the way out
"""


class ServiceError(Exception):
    """Base of all errors of the service."""


class InvalidRequestError(ServiceError):
    """A field of a request is out of range; the message names field, value and range."""


class QueueFullError(ServiceError):
    """No room in the queue. The caller waits `retry_after_s` and tries again."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"the queue is full, retry in {retry_after_s:.1f} s")
        self.retry_after_s = retry_after_s


class NotReadyError(ServiceError):
    """The service is starting, failed its self-test, or is shutting down."""


class SandboxError(ServiceError):
    """A jail could not be started, watched or cleaned up. Says nothing about the program."""


class SetupError(ServiceError):
    """The host lacks something that the service needs."""
