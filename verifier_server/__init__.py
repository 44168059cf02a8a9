"""A hardened gRPC service that runs and judges untrusted Python programs."""

__version__ = "0.1.0"
