"""Validation as a curriculum needs it: noise is caught, quality is remarked on, costs are bounded and told."""

import pytest
from populora.verifier import VerifierClient
from populora.verifier.v1 import verifier_pb2 as pb

pytestmark = pytest.mark.nsjail
NOISE = {
    "entropy": "import random\ndef f(x): return int(random.random() < 0.1)",
    "clock": "import time\ndef f(x): return int(time.time_ns() // 1000 % 10 == 0)",
    "hash seed": "def f(x): return int(hash('a') % 10 == 0)",
    "address": "def f(x): return int(id(object()) // 4096 % 10 == 0)",
    "function in a text": "def g(): pass\ndef f(x): return int(int(('%s' % g)[-8:-1], 16) >> 24 in (3, 11))",
}


def findings(response: pb.ValidateTaskResponse) -> dict[str, str]:
    return {finding.code: finding.detail for finding in response.findings}


@pytest.mark.parametrize("source", NOISE)
def test_noise_of_one_tenth_is_caught(client: VerifierClient, source: str) -> None:
    """Missed with probability 0.9^44 or less, 1 %; two of eight trials missed: (8 over 2) x 0.01^2 = 0.3 %."""
    trials = [client.validate_task(NOISE[source], ["1"]).valid for _ in range(8)]
    assert sum(trials) < 2, "benchmarks/noise.py measures this share over many trials"


def test_an_honest_program_gets_three_interpreters_and_48_draws(client: VerifierClient) -> None:
    response = client.validate_task("def f(x): return x", ["1"])
    assert (response.valid, response.runs) == (True, 3)
    assert 48 <= response.draws <= 50
    many = client.validate_task("def f(x): return x", [str(n) for n in range(5)])
    assert (many.runs, many.draws) == (3, 48), "of each input"


def test_a_program_that_can_see_its_interpreter_gets_many(client: VerifierClient) -> None:
    response = client.validate_task("def f(x): return len({x, 1})", ["5"])
    assert (response.valid, response.runs) == (True, 44)
    assert "sees_interpreter" in findings(response)


def test_runs_and_draws_are_as_asked(client: VerifierClient) -> None:
    response = client.validate_task("def f(x): return len({x, 1})", ["5"], runs=2, draws=10)
    assert (response.runs, response.draws) == (2, 10)
    once = client.validate_task("import random\ndef f(x): return random.random()", ["5"], runs=1)
    assert (once.valid, once.runs, once.draws) == (True, 1, 1)


def test_repetition_of_a_slow_program_ends_and_says_so(client: VerifierClient) -> None:
    """A budget of 4 x 0.25 s of CPU: about ten runs of a tenth of a second, not 48."""
    program = "def f(x): return sum(i * i for i in range(10**6))"
    response = client.validate_task(program, ["1"], limits=pb.Limits(cpu_time_s=0.25))
    assert response.valid, response.detail
    assert response.runs == 3
    assert 3 <= response.draws < 48
    assert "few_draws" in findings(response)


def test_noise_on_one_of_many_inputs_is_caught_as_often(client: VerifierClient) -> None:
    """Missed with probability 0.9^47 = 0.7 % each; two of six missed: (6 over 2) x 0.007^2 < 0.1 %."""
    program = "import random\ndef f(x): return x if x != 3 else int(random.random() < 0.1)"
    trials = [client.validate_task(program, [str(n) for n in range(8)]).valid for _ in range(6)]
    assert sum(trials) < 2


def test_noise_cannot_hide_behind_the_place_in_a_jail(client: VerifierClient) -> None:
    """Later runs of a jail once had larger numbers of processes and files than a judged one can have."""
    program = "import os\ndef f(x): return [os.getpid(), os.stat('.').st_ino]"
    case = pb.TestCase(expected=pb.Value(literal="0"), arguments="0")
    single, later = [], []
    for _ in range(8):
        request = pb.RunCasesRequest(program=program.encode(), cases=[case] * 16, return_outputs=True)
        runs = [eval(c.result.value.literal) for c in client.run_cases(request).cases]
        single.append(runs[0])
        later += runs[1:]
    for column in (0, 1):
        highest = max(run[column] for run in single)
        beyond = sum(run[column] > highest for run in later) / len(later)
        assert beyond < 0.75, "most later runs lie where a first run can lie, too"


def test_noise_in_the_last_draw_of_many_inputs_is_found(client: VerifierClient) -> None:
    program = "import random\ndef f(x): return x if x < 5 or random.random() < 0.5 else 0"
    response = client.validate_task(program, [str(n) for n in range(6)])
    assert list(response.reasons) == [pb.REASON_NONDETERMINISTIC]
    assert response.detail.startswith("input 5")


@pytest.mark.parametrize(
    ("program", "allowed", "expected"),
    [
        ("import os, math\ndef f(x): return x", (), "os"),
        ("import os.path\nfrom subprocess import run\ndef f(x): return x", (), "os, subprocess"),
        ("import math, re, collections\ndef f(x): return x", (), None),
        ("import math\ndef f(x): return x", ("re",), "math"),
        ("import os\ndef f(x): return x", ("os",), None),
        ("def f(x):\n  import socket\n  return x", (), "socket"),
    ],
)
def test_the_module_policy_is_a_remark(
    client: VerifierClient, program: str, allowed: tuple, expected: str | None
) -> None:
    response = client.validate_task(program, ["1"], runs=1, allowed_modules=allowed)
    assert response.valid
    assert findings(response).get("module_not_allowed") == expected


@pytest.mark.parametrize(
    ("arguments", "is_constant"), [(["1", "2"], True), (["1", "1"], False), (["1"], False), (["1", "0"], False)]
)
def test_constant_needs_two_different_inputs(client: VerifierClient, arguments: list[str], is_constant: bool) -> None:
    response = client.validate_task("def f(x): return x > 0", arguments, runs=1)
    assert ("constant_output" in findings(response)) is is_constant


@pytest.mark.parametrize(
    ("program", "unused"),
    [
        ("def f(x, y): return x", "y"),
        ("def f(x, *rest, k=1): return x", "k, rest"),
        ("def f(x, y): return [x for y in (1,)]", None),
        ("def f(x, y):\n  def g(): return y\n  return x + g()", None),
    ],
)
def test_unused_inputs_are_remarked_on(client: VerifierClient, program: str, unused: str | None) -> None:
    arguments = "1" if "*" in program else "1, 2"
    assert findings(client.validate_task(program, [arguments], runs=1)).get("unused_parameter") == unused


def test_measures_are_those_of_the_text(client: VerifierClient) -> None:
    program = "def f(a):\n    total = 0\n    for x in a:\n        if x > 1 and x < 9:\n            total += x\n    return total"
    features = client.validate_task(program, ["[1, 2]"], runs=1).features
    # 1 + for + if + and = 4; def, assign, for, if, augmented assign, return = 6; total and x are assigned.
    assert (features.cyclomatic_complexity, features.lines, features.variables) == (4, 6, 2)
    assert features.depth > 5
    assert features.halstead_volume > 0
    assert features.type_signature == "(list) -> int"
