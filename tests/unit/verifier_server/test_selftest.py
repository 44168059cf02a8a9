"""The self-test's own judgement: a weakened deployment must not pass."""

import pytest
from populora.verifier.v1 import verifier_pb2 as pb

from verifier_server.domain import Outcome
from verifier_server.errors import SetupError
from verifier_server.judging import codec
from verifier_server.selftest.attack import Attack
from verifier_server.selftest.runner import find_breach, run_selftest
from verifier_server.selftest.suite import ATTACKS, CLASSES


def respond(value: object, *, verdict: int = pb.VERDICT_WRONG) -> pb.RunCasesResponse:
    result = pb.RunResult(
        outcome=pb.OUTCOME_COMPLETED, value=pb.Value(canonical=codec.encode(value, 99), literal=repr(value))
    )
    return pb.RunCasesResponse(verdict=verdict, cases=[pb.ScoredCase(verdict=verdict, result=result)])


@pytest.mark.parametrize("attack", CLASSES["system calls"], ids=lambda attack: attack.name)
def test_a_call_that_returns_is_a_breach(attack: Attack) -> None:
    """As it would without a seccomp filter: mount returns 0."""
    assert find_breach(attack, respond(0), 0.1)


def test_an_attack_that_completes_although_it_should_be_stopped_is_a_breach() -> None:
    for attack in ATTACKS:
        if attack.outcome is not Outcome.COMPLETED:
            assert "completed" in find_breach(attack, respond("survived"), 0.1)


def test_correct_and_late_answers_are_breaches() -> None:
    attack = ATTACKS[0]
    assert "CORRECT" in find_breach(attack, respond(1, verdict=pb.VERDICT_CORRECT), 0.1)
    late = respond(1)
    late.cases[0].result.outcome = pb.OUTCOME_MEMORY_LIMIT
    assert "took" in find_breach(attack, late, 60.0)


def test_the_value_that_proves_an_attack_void_is_no_breach() -> None:
    attack = next(attack for attack in ATTACKS if attack.name == "places_of_secrets")
    assert find_breach(attack, respond([]), 0.1) == ""
    assert "/etc/shadow" in find_breach(attack, respond(["/etc/shadow"]), 0.1)


def test_an_unknown_choice_is_explained_before_anything_runs() -> None:
    with pytest.raises(SetupError, match="no such attack"):
        run_selftest("unix:/no/such/socket", only="typo")
