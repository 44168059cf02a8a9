"""Why a jail did not start is told without the noise of the dynamic linker."""

from verifier_server.sandbox.jail import _pick_reason

NOTE = b"nsjail: libnl-3.so.200: no version information available (required by nsjail)\n"


def test_the_reason_is_what_nsjail_said_last() -> None:
    assert _pick_reason(NOTE * 9 + b"[E] clone failed\n") == "[E] clone failed"


def test_silence_is_named() -> None:
    assert _pick_reason(NOTE) == "nsjail gave no reason"
