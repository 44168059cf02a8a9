"""Public reward hacks: what fooled other judges, with the verdict that it gets here.

Each hack scored as a pass somewhere; the comment says where and why it did.
"""

import secrets

import pytest
from populora.verifier import VerifierClient
from populora.verifier.v1 import verifier_pb2 as pb

from tests.contract.helpers import value
from verifier_server.judging import codec
from verifier_server.selftest.attack import LIMITS
from verifier_server.selftest.suite import ATTACKS

pytestmark = pytest.mark.nsjail
C, W, M, F = pb.VERDICT_CORRECT, pb.VERDICT_WRONG, pb.VERDICT_MALFORMED, pb.VERDICT_FAILED
CASES = [("1", value("2")), ("5", value("10"))]


def run_stdin(client: VerifierClient, program: str, expected: bytes) -> int:
    cases = [pb.TestCase(stdin=b"3\n", expected_stdout=expected)]
    return client.run_cases(pb.RunCasesRequest(program=program.encode(), reads_stdin=True, cases=cases)).verdict


def test_early_exit_with_status_zero_is_no_pass(client: VerifierClient) -> None:
    """verl's sandbox_fusion appended asserts to the solution and took the exit status for the verdict."""
    response = client.judge_induction("import os\nos._exit(0)", CASES)
    assert (response.verdict, response.outcome) == (F, pb.OUTCOME_NO_RESULT)
    script = client.run_script("import os\nos._exit(0)", "assert f(1) == 2")
    assert script.status == pb.SCRIPT_STATUS_NO_RESULT


def test_expected_answers_in_the_working_folder_are_not_there(client: VerifierClient) -> None:
    """tinker-cookbook ran the solution beside a file with the expected outputs."""
    program = (
        "import os\ndef f(x):\n  for top, _, names in os.walk('/tmp'):\n    for n in names: return open(os.path.join(top, n)).read()\n"
        "  return open('test_cases.txt').read()"
    )
    assert client.judge_induction(program, CASES).verdict == F


def test_frames_hold_no_expected_value_and_no_result_list(client: VerifierClient) -> None:
    """verl prime_code, rllm, LiveCodeBench, human-eval and evalplus compared inside of the untrusted process."""
    program = (
        "import gc, sys\ndef f(x):\n  frame = sys._getframe()\n  while frame:\n    for v in list(frame.f_locals.values()):\n"
        "      if type(v) is list: v.append(True)\n      if type(v) is dict and 'expected' in v: return v['expected']\n    frame = frame.f_back\n"
        "  for o in gc.get_objects():\n    if type(o) is dict and 'expected' in o: return o['expected']\n  return True"
    )
    assert client.judge_induction(program, CASES).verdict == W


def test_a_swallowed_timer_still_ends_the_program(client: VerifierClient) -> None:
    """human-eval's and LiveCodeBench's time limit was an exception that the program could catch."""
    program = "import time\ndef f(x):\n  while True:\n    try: time.sleep(9)\n    except BaseException: pass"
    response = client.judge_induction(program, CASES, limits=pb.Limits(wall_time_s=0.3))
    assert (response.verdict, response.outcome) == (F, pb.OUTCOME_WALL_TIMEOUT)


def test_a_prefix_of_the_output_is_no_pass(client: VerifierClient) -> None:
    """open-r1 compared with zip(), which ends with the shorter list."""
    assert run_stdin(client, "print(1)", b"1\n2\n3\n") == W
    assert run_stdin(client, "pass", b"1\n") == W
    assert run_stdin(client, "print(1)\nprint(2)\nprint(3)", b"1\n2\n3\n") == C


@pytest.mark.parametrize(
    "answer",
    ["__import__('os').system('id')", "exec('import builtins; builtins.all = lambda x: True')", "0) or (1", "A()"],
)
def test_answers_are_never_evaluated(client: VerifierClient, answer: str) -> None:
    """Absolute Zero evaluated the agent's answer and the program's result in the trainer (so did verl, CVE-2026-6878)."""
    assert client.judge_deduction(value("1"), answer).verdict == M
    assert client.judge_abduction("def f(x): return x", value("1"), answer).verdict == M
    assert client.judge_deduction(value("1"), "1").verdict == C


@pytest.mark.parametrize(
    "leave",
    [
        "exit( 0x0 )",
        "import sys; sys.exit(False)",
        "__import__('os').kill(__import__('os').getpid(), 9)",
        "import ctypes; ctypes.CDLL(None)._exit(0)",
        "raise SystemExit",
        "import posix; posix._exit(0)",
    ],
)
def test_no_way_of_leaving_is_a_pass(client: VerifierClient, leave: str) -> None:
    """SandboxFusion's guard replaced os._exit and searched the text for exit(0)."""
    assert client.judge_induction(f"def f(x):\n  {leave}", CASES).verdict == F


def test_markers_in_the_output_are_only_output(client: VerifierClient) -> None:
    """code-judge split stdout at @@E: printed once it cut the output, printed twice it broke the worker."""
    assert run_stdin(client, "print('@@E')\nprint(7)", b"7\n") == W
    assert run_stdin(client, "print('@@E@@E')", b"@@E@@E\n") == C
    assert run_stdin(client, "print('@@D@@E')", b"x") == W


@pytest.mark.parametrize("expected", ["''", "None", "[]", "False"])
def test_an_exception_is_no_pass_whatever_was_expected(client: VerifierClient, expected: str) -> None:
    """verl counted a raising solution as right where the expected output was empty."""
    for body in ("raise ValueError", "raise SystemExit(0)"):
        assert client.judge_induction(f"def f(x): {body}", [("1", value(expected))]).verdict == F


def test_no_cases_are_no_pass(client: VerifierClient) -> None:
    """LiveCodeBench's any(...) and verl's all([]) are content with an empty list; here it is a refused request."""
    from populora.verifier import RequestRefusedError

    with pytest.raises(RequestRefusedError, match="cases"):
        client.judge_induction("def f(x): return x", [])


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_no_hostile_program_obtains_a_value_that_it_cannot_know(client: VerifierClient, attack: object) -> None:
    """A fresh random 128-bit value is expected; over the whole corpus none may come back as CORRECT."""
    secret = secrets.token_hex(16)
    case = pb.TestCase(stdin=attack.stdin)
    if attack.is_script:
        case.expected_stdout = secret.encode()
    else:
        case.expected.canonical = codec.encode_str(secret)
    program = attack.program if isinstance(attack.program, bytes) else attack.program.encode("utf-8", "surrogatepass")
    limits = {**LIMITS, **attack.limits, "cpu_time_s": 0.3, "wall_time_s": 0.6}
    response = client.run_cases(
        pb.RunCasesRequest(
            program=program,
            reads_stdin=attack.is_script,
            cases=[case],
            comparator=pb.Comparator(preset=0 if attack.is_script else pb.Comparator.PRESET_PYTHON_EQ),
            limits=pb.Limits(**{k: v if k.endswith("_s") else int(v) for k, v in limits.items()}),
        )
    )
    assert response.verdict in (W, F)
