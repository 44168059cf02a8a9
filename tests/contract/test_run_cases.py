"""RunCases and RunScript over real gRPC and real jails."""

import pytest
from populora.verifier import VerifierClient
from populora.verifier.v1 import verifier_pb2 as pb

from tests.contract.helpers import value

pytestmark = pytest.mark.nsjail
C, W, F, U = pb.VERDICT_CORRECT, pb.VERDICT_WRONG, pb.VERDICT_FAILED, pb.VERDICT_UNJUDGED
P = pb.Comparator


def case(arguments: str, expected: str | None = None) -> pb.TestCase:
    return pb.TestCase(arguments=arguments, expected=value(expected) if expected is not None else None)


def run(client: VerifierClient, program: str, cases: list[pb.TestCase], **rest: object) -> pb.RunCasesResponse:
    return client.run_cases(pb.RunCasesRequest(program=program.encode(), cases=cases, **rest))


def verdicts(response: pb.RunCasesResponse) -> list[int]:
    return [scored.verdict for scored in response.cases]


def test_a_case_has_its_own_verdict_and_the_fraction_counts(client: VerifierClient) -> None:
    response = run(client, "def f(x): return x * 2", [case("1", "2"), case("2", "5"), case("3", "6"), case("'a'", "1")])
    assert verdicts(response) == [C, W, C, W]
    assert (response.verdict, response.correct, response.unjudged, response.fraction_correct) == (W, 2, 0, 0.5)


@pytest.mark.parametrize(
    ("bad", "outcome"),
    [
        ("while True: pass", pb.OUTCOME_CPU_TIMEOUT),
        ("x = [0]\n    while True: x += x", pb.OUTCOME_MEMORY_LIMIT),
        ("import os; os.kill(-1, 9); os.kill(os.getpid(), 9)", pb.OUTCOME_EXCEPTION),
        ("import os; os.kill(os.getpid(), 9)", pb.OUTCOME_SIGNALED),
        ("import os; os._exit(0)", pb.OUTCOME_NO_RESULT),
        ("import time; time.sleep(9)", pb.OUTCOME_WALL_TIMEOUT),
    ],
)
def test_a_bad_case_loses_only_itself(client: VerifierClient, bad: str, outcome: int) -> None:
    program = f"def f(x):\n  if x == 2:\n    {bad}\n  return x"
    limits = pb.Limits(cpu_time_s=0.3, wall_time_s=0.8, memory_bytes=128 << 20)
    response = run(client, program, [case("1", "1"), case("2", "2"), case("3", "3")], limits=limits)
    assert verdicts(response) == [C, F, C]
    assert response.cases[1].result.outcome == outcome


def test_a_method_is_called_on_a_fresh_instance_per_case(client: VerifierClient) -> None:
    program = (
        "class Solution:\n  def __init__(self): self.seen = []\n  def add(self, x):\n    self.seen.append(x)\n    return self.seen\n"
        "  @staticmethod\n  def twice(x): return 2 * x"
    )
    response = run(client, program, [case("1", "[1]"), case("2", "[2]")], entry_point="Solution.add")
    assert response.verdict == C
    assert run(client, program, [case("4", "8")], entry_point="Solution.twice").verdict == C
    missing = run(client, program, [case("4", "8")], entry_point="Solution.nothing")
    assert missing.cases[0].result.outcome == pb.OUTCOME_NO_ENTRY_POINT


def test_eleven_hundred_cases_go_through_one_call(client: VerifierClient) -> None:
    response = run(client, "def f(x): return -x", [case(str(n), str(-n)) for n in range(1100)])
    assert (response.verdict, response.correct, len(response.cases)) == (C, 1100, 1100)


def test_a_reference_gives_the_expected_values_and_its_failure_is_nobodys(client: VerifierClient) -> None:
    reference = "def f(x):\n  if x == 2: return 'x' * 10**6\n  return x + 1"
    response = run(client, "def f(x): return x + 1", [case("1"), case("2"), case("3")], reference=reference.encode())
    assert verdicts(response) == [C, U, C]
    assert response.cases[1].reference_outcome == pb.OUTCOME_VALUE_LIMIT
    assert (response.verdict, response.unjudged, response.fraction_correct) == (U, 1, 1.0)


def test_the_candidate_does_not_see_the_reference(client: VerifierClient) -> None:
    candidate = (
        "import gc, sys\ndef f(x):\n  found = [o for o in gc.get_objects() if type(o) is dict and 'reference_value' in repr(o)[:9999]]\n"
        "  return len(found) and 77"
    )
    reference = b"reference_value = 77\ndef f(x): return reference_value"
    assert run(client, candidate, [case("1")], reference=reference).verdict != C


def test_nothing_after_the_first_failure_runs_if_asked(client: VerifierClient) -> None:
    cases = [case(str(n), "1") for n in range(200)]
    response = run(client, "def f(x): return 1 if x < 120 else 0", cases, stop_at_first_failure=True)
    assert (len(response.cases), response.correct, response.verdict) == (121, 120, W)
    assert response.fraction_correct == 120 / 200
    by_reference = run(
        client,
        "def f(x): return 1 if x < 120 else 0",
        [case(str(n)) for n in range(200)],
        reference=b"def f(x): return 1",
        stop_at_first_failure=True,
    )
    assert (len(by_reference.cases), by_reference.correct) == (121, 120)


@pytest.mark.parametrize(
    ("reader"),
    [
        "import sys\ndata = sys.stdin.buffer.read().split()",
        "data = open(0).read().split()",
        "data = []\nwhile True:\n  try: data += input().split()\n  except EOFError: break",
        "import os\ndata = os.read(0, 99).split()",
        "import fileinput\ndata = ' '.join(fileinput.input()).split()",
        "import sys\ndata = [w for line in sys.stdin for w in line.split()]",
    ],
)
def test_standard_input_is_real_whatever_reads_it(client: VerifierClient, reader: str) -> None:
    program = f"{reader}\nif __name__ == '__main__':\n  print(sum(map(int, data)))"
    cases = [
        pb.TestCase(stdin=b"1 2\n3\n", expected_stdout=b"6\n"),
        pb.TestCase(stdin=b"", expected_stdout=b"0"),
        pb.TestCase(stdin=b"10\n", expected_stdout=b"11\n"),
    ]
    response = run(client, program, cases, reads_stdin=True, return_outputs=True)
    assert verdicts(response) == [C, C, W]
    assert [scored.stdout for scored in response.cases] == [b"6\n", b"0\n", b"10\n"]


@pytest.mark.parametrize(
    ("preset", "program", "expected", "verdict"),
    [
        (P.PRESET_EXACT, "print(1, 2)", b"1 2\n", C),
        (P.PRESET_EXACT, "print(1, 2)", b"1 2", W),
        (P.PRESET_STDIN_LINES, "print('1 2  ')\nprint()", b"1 2\r\n", C),
        (P.PRESET_STDIN_LINES, "print(1)\nprint(2)", b"1 2", W),
        (P.PRESET_STDIN_TOKENS, "print(1)\nprint(2)", b"1 2", C),
        (P.PRESET_STDIN_TOKENS, "print(1)", b"1 2", W),
        (P.PRESET_STDIN_TOKENS, "print(1, 2, 3)", b"1 2", W),
        (P.PRESET_STDIN_TOKENS, "print('1.0')", b"1", W),
        (P.PRESET_STDIN_TOKENS, "pass", b"", C),
        (P.PRESET_STDIN_TOKENS, "raise SystemExit(0)", b"", C),
        (P.PRESET_STDIN_TOKENS, "raise SystemExit(1)", b"", F),
        (P.PRESET_STDIN_TOKENS, "raise ValueError", b"", F),
    ],
)
def test_presets_of_standard_output(
    client: VerifierClient, preset: int, program: str, expected: bytes, verdict: int
) -> None:
    cases = [pb.TestCase(expected_stdout=expected)]
    assert run(client, program, cases, reads_stdin=True, comparator=P(preset=preset)).verdict == verdict


@pytest.mark.parametrize(
    ("program", "expected", "exact", "python"),
    [
        ("from collections import Counter\ndef f(): return Counter('aab')", "{'a': 2, 'b': 1}", F, C),
        ("from collections import namedtuple\ndef f(): return namedtuple('P', 'x y')(1, 2)", "(1, 2)", F, C),
        ("def f(): return 1 + 0j", "1", W, C),
        ("def f(): return True", "1", W, C),
        ("import enum\nclass E(enum.IntEnum):\n  A = 3\ndef f(): return E.A", "3", F, C),
        ("class I(int):\n  def __eq__(self, other): return True\ndef f(): return I(4)", "3", F, W),
        ("class D(dict):\n  def items(self): return [('a', 2)]\ndef f(): return D(a=1)", "{'a': 2}", F, W),
        ("class A:\n  def __eq__(self, other): return True\ndef f(): return A()", "None", F, W),
        ("class A: pass\ndef f(): return [A()]", "[1]", F, W),
        ("import re\ndef f(): return re.match('a', 'a')", "None", F, W),
        ("def f(): return [1]", "(1,)", W, W),
    ],
)
def test_exact_and_lenient_results(
    client: VerifierClient, program: str, expected: str, exact: int, python: int
) -> None:
    found = [
        run(client, program, [case("", expected)], comparator=P(preset=preset)).verdict
        for preset in (P.PRESET_EXACT, P.PRESET_PYTHON_EQ)
    ]
    assert found == [exact, python]


CHECKER = (
    b"def check(arguments, output, expected):\n  (n,) = arguments\n  a, b = output\n  return a * b == n and a > 1 < b"
)


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("def f(n): return [3, n // 3]", C),
        ("def f(n): return (n // 5, 5)", C),
        ("def f(n): return [1, n]", W),
        ("def f(n): return 'a checker that raises is no pass'", W),
        ("class T:\n  def __iter__(self): return iter((3, 5))\ndef f(n): return T()", W),
        ("def f(n): raise ValueError", F),
    ],
)
def test_a_checker_decides_in_a_jail_of_its_own(client: VerifierClient, program: str, verdict: int) -> None:
    assert run(client, program, [case("15")], comparator=P(checker=CHECKER)).verdict == verdict


@pytest.mark.parametrize(
    "checker",
    [
        b"def check(arguments, output, expected): return 1",
        # With hash seed 1 hash('b') is odd, with seed 2 it is even: accepted once, refused once.
        b"def check(arguments, output, expected): return hash('b') % 2 == 1",
        b"import os\ndef check(arguments, output, expected): os._exit(0)",
        b"def check(arguments, output, expected):\n  while True: pass",
        b"def check(:",
        b"x = 1",
    ],
)
def test_only_true_twice_from_a_checker_is_a_pass(client: VerifierClient, checker: bytes) -> None:
    limits = pb.Limits(cpu_time_s=0.3)
    assert run(client, "def f(x): return x", [case("15")], comparator=P(checker=checker), limits=limits).verdict == W


def test_a_checker_of_standard_output_gets_bytes(client: VerifierClient) -> None:
    checker = b"def check(arguments, output, expected): return int(output) ** 2 == int(arguments) and expected == b'e'"
    cases = [pb.TestCase(stdin=b"49", expected_stdout=b"e"), pb.TestCase(stdin=b"50", expected_stdout=b"e")]
    response = run(client, "print(int(int(input()) ** 0.5))", cases, reads_stdin=True, comparator=P(checker=checker))
    assert verdicts(response) == [C, W]


def test_outputs_come_back_only_if_asked(client: VerifierClient) -> None:
    cases = [case("1", "1")]
    assert not run(client, "def f(x): return x", cases).cases[0].result.HasField("value")
    assert run(client, "def f(x): return x", cases, return_outputs=True).cases[0].result.value.literal == "1"


def test_an_opaque_result_has_no_literal(client: VerifierClient) -> None:
    program = "import re\ndef f(): return [re.compile('a')]"
    response = run(client, program, [case("", "1")], comparator=P(preset=P.PRESET_PYTHON_EQ), return_outputs=True)
    assert response.cases[0].result.value.literal == ""


def test_what_a_lenient_run_sends_is_checked_all_the_same(client: VerifierClient) -> None:
    program = "import os\ndef f():\n  os.write(3, b'V\\5\\0\\0\\0O\\3\\xff\\xff\\xff')\n  os._exit(0)"
    response = run(client, program, [case("", "1")], comparator=P(preset=P.PRESET_EVALPLUS))
    assert response.cases[0].result.outcome == pb.OUTCOME_INVALID_RESULT


def test_a_forgotten_expected_output_is_no_empty_one(client: VerifierClient) -> None:
    """`pass` was CORRECT for it."""
    from populora.verifier import RequestRefusedError

    for bad in (pb.TestCase(stdin=b"3"), pb.TestCase(stdin=b"3", expected=value("9")), pb.TestCase(arguments="3")):
        with pytest.raises(RequestRefusedError, match=r"cases\[0\]"):
            run(client, "pass", [bad], reads_stdin=True)
    for bad in (pb.TestCase(expected_stdout=b""), pb.TestCase(stdin=b"x", expected=value("1"))):
        with pytest.raises(RequestRefusedError, match=r"cases\[0\]"):
            run(client, "def f(): pass", [bad])
    assert run(client, "pass", [pb.TestCase(expected_stdout=b"")], reads_stdin=True).verdict == C


@pytest.mark.parametrize(
    ("comparator", "field"),
    [
        (P(absolute_tolerance=0.1), "absolute_tolerance"),
        (P(preset=P.PRESET_EXACT, as_sets=True), "as_sets"),
        (P(preset=P.PRESET_EVALPLUS, as_sets=True, absolute_tolerance=0.1), "absolute_tolerance"),
        (P(preset=P.PRESET_EVALPLUS, not_none=True, relative_tolerance=0.1), "relative_tolerance"),
        (P(preset=P.PRESET_EVALPLUS, as_sets=True, not_none=True), "not_none"),
        (P(checker=b"x", absolute_tolerance=0.1), "absolute_tolerance"),
        (P(checker=b"x", preset=P.PRESET_EVALPLUS), "preset"),
    ],
)
def test_a_comparator_field_without_effect_is_refused(client: VerifierClient, comparator: object, field: str) -> None:
    from populora.verifier import RequestRefusedError

    with pytest.raises(RequestRefusedError, match=f"comparator.{field}"):
        run(client, "def f(): return 1", [case("", "1")], comparator=comparator)


def test_an_opaque_reference_leaves_the_case_unjudged(client: VerifierClient) -> None:
    program = "def f(): return iter([1])"
    response = run(client, program, [case("")], reference=program.encode(), comparator=P(preset=P.PRESET_EVALPLUS))
    assert (verdicts(response), response.cases[0].reference_outcome) == ([U], pb.OUTCOME_COMPLETED)
    present = run(
        client, program, [case("")], reference=program.encode(), comparator=P(preset=P.PRESET_EVALPLUS, not_none=True)
    )
    assert present.verdict == C
    checker = b"def check(arguments, output, expected): return output == 5 and expected is None"
    checked = run(client, "def f(): return 5", [case("")], reference=program.encode(), comparator=P(checker=checker))
    assert checked.verdict == C


def test_forged_events_of_many_cases_do_not_fill_the_response(client: VerifierClient) -> None:
    """64 events of 298 four-byte characters in each of 1,000 cases would be 76 MB; gRPC takes 64 MiB."""
    program = (
        "import json, os\ndef f():\n  for i in range(64):\n"
        "    data = json.dumps(['\U0001f600' * 98 + str(i), '\U0001f600' * 200, 1], ensure_ascii=False).encode()\n"
        "    os.write(3, b'H' + len(data).to_bytes(4, 'little') + data)\n  return 0"
    )
    response = run(client, program, [case("", "1")] * 1000)
    assert (response.verdict, len(response.cases)) == (W, 1000)
    assert response.cases[0].result.hook_events
    assert all(len(event.detail) <= 200 for event in response.cases[0].result.hook_events)


def test_no_candidate_can_make_the_response_too_large(client: VerifierClient) -> None:
    """2,000 values of 15,000 bytes whose literals are four times as long: 120 MB of text, over gRPC's 64 MiB."""
    response = run(client, "def f(): return b'\\xff' * 15000", [case("", "1")] * 2000, return_outputs=True)
    assert (response.verdict, len(response.cases)) == (W, 2000)
    assert response.cases[0].result.value.literal.startswith("b'")
    assert response.cases[-1].result.value.literal == ""
    assert len(response.cases[-1].result.value.canonical) > 15000


@pytest.mark.parametrize(
    "program",
    [
        "#!/usr/bin/env python3\n# -*- coding: latin-1 -*-\nfrom __future__ import annotations\nprint('ok')",
        "\ufeffprint('ok')",
        "import sys\r\nif __name__ == '__main__':\r\n\tprint('ok')\r\n",
        "def main():\n  print('ok')\n  exit()\nmain()",
        "import sys\nprint('ok'); sys.exit()",
        "print('ok'); quit(0)",
        "import sys\nsys.stdout.write('ok\\n'); sys.stdout.flush()",
        "import sys\nsys.setrecursionlimit(10**6)\ndef g(n): return n and 1 + g(n - 1)\nprint('ok' if g(20000) == 20000 else 0)",
        "import threading, sys\nthreading.stack_size(64 << 20)\nt = threading.Thread(target=lambda: print('ok'))\nt.start()\nt.join()",
    ],
)
def test_programs_run_as_ordinary_scripts(client: VerifierClient, program: str) -> None:
    response = run(client, program, [pb.TestCase(expected_stdout=b"ok\n")], reads_stdin=True)
    assert response.verdict == C, response.cases[0].result


# --- RunScript -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "script", "status"),
    [
        ("def f(x): return x + 1", "assert f(1) == 2", pb.SCRIPT_STATUS_FINISHED),
        ("def f(x): return x + 2", "assert f(1) == 2", pb.SCRIPT_STATUS_FAILED),
        ("def f(x): return x", "assert f(1) == ", pb.SCRIPT_STATUS_FAILED),
        ("import sys\nsys.exit(0)", "assert False", pb.SCRIPT_STATUS_NO_RESULT),
        ("import os\ndef f(x): os._exit(0)", "assert f(1) == 2", pb.SCRIPT_STATUS_NO_RESULT),
        ("def f(x):\n  while True: pass", "assert f(1) == 2", pb.SCRIPT_STATUS_FAILED),
        ("import unittest", "raise unittest.SkipTest", pb.SCRIPT_STATUS_FAILED),
    ],
)
def test_a_script_has_a_status_and_no_verdict(client: VerifierClient, program: str, script: str, status: int) -> None:
    response = client.run_script(program, script, limits=pb.Limits(cpu_time_s=0.5))
    assert response.status == status
    assert "verdict" not in pb.RunScriptResponse.DESCRIPTOR.fields_by_name


def test_a_script_shares_names_streams_and_input_with_its_program(client: VerifierClient) -> None:
    response = client.run_script(
        "import sys\nx = input()", "print(x, __name__)\nprint('e', file=sys.stderr)", stdin=b"hello"
    )
    assert (response.stdout, response.stderr) == (b"hello __main__\n", b"e\n")
    assert response.status == pb.SCRIPT_STATUS_FINISHED


def test_streams_carry_both(client: VerifierClient) -> None:
    items = [
        pb.StreamRequest(id="a", run_cases=pb.RunCasesRequest(program=b"def f(): return 1", cases=[case("", "1")])),
        pb.StreamRequest(id="b", run_script=pb.RunScriptRequest(program=b"x = 1", script=b"assert x")),
    ]
    replies = {reply.id: reply for reply in client.stream(items)}
    assert replies["a"].run_cases.verdict == C
    assert replies["b"].run_script.status == pb.SCRIPT_STATUS_FINISHED
