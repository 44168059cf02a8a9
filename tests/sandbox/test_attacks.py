"""Every attack of the suite on the engine: the exact outcome, in time, the next run unaffected, nothing left over.

The programs are those of `python -m verifier_server selftest` (verifier_server/selftest). They and their jails run under
a memory limit of their own, see `engine`.
"""

import time

import pytest

from tests.conftest import EngineThread, make_run
from tests.contract.helpers import wait_until
from tests.residue import Residue
from verifier_server.domain import Mode, Outcome, Run
from verifier_server.judging import codec
from verifier_server.selftest.attack import AFTERWARDS, START_S, Attack
from verifier_server.selftest.suite import ATTACKS, CLASSES


def prepare(attack: Attack) -> Run:
    mode = Mode.SCRIPT if attack.is_script else Mode.CALL
    return make_run(attack.program, mode=mode, stdin=attack.stdin, **attack.limits)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_ends_with_its_outcome_in_time(engine: EngineThread, attack: Attack) -> None:
    before = Residue.take(engine)
    start = time.monotonic()
    result = engine.run(prepare(attack))[0]
    elapsed = time.monotonic() - start
    assert (result.outcome, result.evidence) == (attack.outcome, attack.evidence), result
    assert attack.signal in (None, result.signal)
    assert attack.exit_status in (None, result.exit_status)
    assert result.denied_syscall == attack.syscall
    if attack.returns is not ...:
        assert result.value == codec.encode(attack.returns, 1 << 20)
    assert elapsed < attack.bound_s + START_S
    after = engine.run(make_run(attack.then or AFTERWARDS))[0]
    assert after.value == b"T", after
    # A killed process may wait for the host's init to reap it.
    wait_until(lambda: Residue.take(engine) == before, timeout_s=2.0)


def test_the_suite_is_as_large_as_promised_and_names_are_unique() -> None:
    names = [attack.name for attack in ATTACKS]
    assert len(names) >= 110
    assert len(set(names)) == len(names)
    assert all(CLASSES.values())


def test_no_attack_expects_a_verdict_by_accident() -> None:
    """An attack that completes says which value; one that is denied a call says which."""
    for attack in ATTACKS:
        if attack.outcome is Outcome.COMPLETED and not attack.is_script and not attack.then:
            assert attack.returns is not ..., attack.name
        if attack.outcome is Outcome.SYSCALL_DENIED:
            assert attack.syscall or attack.name == "signal_31_to_itself"
