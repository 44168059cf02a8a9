"""The methods of the contract: what goes in and what comes out, over real gRPC and real jails."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from populora.verifier import RequestRefusedError, VerifierClient
from populora.verifier.v1 import verifier_pb2 as pb

from tests.conftest import ServerProcess
from tests.contract.helpers import value

pytestmark = pytest.mark.nsjail
# --- the methods -------------------------------------------------------------------------------------------


def test_a_valid_task_comes_back_with_values_and_features(client: VerifierClient) -> None:
    response = client.validate_task("def f(xs, k=1):\n    return [x * k for x in xs]", ["[1, 2]", "[3], k=2"])
    assert response.valid
    assert not response.reasons
    assert [r.value.literal for r in response.results] == ["[1, 2]", "[6]"]
    features = response.features
    assert len(features.ast_hash) == 64
    assert features.type_signature == "(list) -> list"
    assert (features.lines, features.variables, features.cyclomatic_complexity) == (2, 1, 2)
    assert response.provenance.engine == "nsjail"
    assert len(response.provenance.image_digest) == 64


@pytest.mark.parametrize(
    ("program", "arguments", "reason"),
    [
        ("def f(x): return x", ["y"], pb.REASON_MALFORMED_ARGUMENTS),
        ("def f(x) return x", ["1"], pb.REASON_SYNTAX_ERROR),
        ("def g(x): return x", ["1"], pb.REASON_NO_ENTRY_POINT),
        ("def f(x): return 1 / x", ["1", "0"], pb.REASON_RUN_FAILED),
        ("def f(x): return object()", ["1"], pb.REASON_RUN_FAILED),
        ("def f(x): return 'x' * 20000", ["1"], pb.REASON_RUN_FAILED),
        ("import random\ndef f(x): return random.random()", ["1"], pb.REASON_NONDETERMINISTIC),
        ("def f(x): return str({'a', 'b', 'c', 'd', 'e'})", ["1"], pb.REASON_NONDETERMINISTIC),
        ("def f(x): return hash('a')", ["1"], pb.REASON_NONDETERMINISTIC),
        ("def f(x): return id(object())", ["1"], pb.REASON_NONDETERMINISTIC),
        ("import time\ndef f(x): return time.strftime('%j')", ["1"], pb.REASON_NONDETERMINISTIC),
        ("from datetime import date\ndef f(x): return date.today().isoformat()", ["1"], pb.REASON_NONDETERMINISTIC),
        ("import os\ndef f(x): return os.getcwd()", ["1"], pb.REASON_NONDETERMINISTIC),
        ("import socket\ndef f(x): return socket.gethostname()", ["1"], pb.REASON_NONDETERMINISTIC),
        ("def f(x):\n  return " + "-" * 50_000 + "1", ["1"], pb.REASON_TOO_DEEP),
    ],
)
def test_an_invalid_task_has_a_reason(client: VerifierClient, program: str, arguments: list[str], reason: int) -> None:
    response = client.validate_task(program, arguments, runs=4)
    assert not response.valid
    assert list(response.reasons) == [reason], response.detail


def test_findings_are_remarks_and_not_reasons(client: VerifierClient) -> None:
    response = client.validate_task("import sys\nimport random\ndef f(x, y):\n    return 1", ["1, 2", "3, 4"])
    assert response.valid
    assert {f.code for f in response.findings} == {
        "introspects",
        "module_not_allowed",
        "reads_entropy",
        "unused_parameter",
        "constant_output",
    }


def test_programs_that_differ_only_in_names_have_one_hash(client: VerifierClient) -> None:
    one = client.validate_task("def f(a):\n    '''doc'''\n    b = a + 1\n    return b", ["1"], runs=1)
    two = client.validate_task("def f(x):  # comment\n    y = x + 1\n    return y", ["1"], runs=1)
    three = client.validate_task("def f(x):\n    y = x + 2\n    return y", ["1"], runs=1)
    assert one.features.ast_hash == two.features.ast_hash != three.features.ast_hash


@pytest.mark.parametrize(
    ("expected", "answer", "verdict"),
    [
        ("[1, 2]", "[1,2]", pb.VERDICT_CORRECT),
        ("[1, 2]", "(1, 2)", pb.VERDICT_WRONG),
        ("1", "True", pb.VERDICT_WRONG),
        ("1", "1.0", pb.VERDICT_WRONG),
        ("0.3", "0.1 + 0.2", pb.VERDICT_MALFORMED),
        ("nan", "nan", pb.VERDICT_CORRECT),
        ("{1, 2}", "{2, 1}", pb.VERDICT_CORRECT),
        ("4", "__import__('os').getpid()", pb.VERDICT_MALFORMED),
        ("'a'", "a", pb.VERDICT_MALFORMED),
        ("(1, 2)", "1, 2", pb.VERDICT_CORRECT),
        ("'\\ud800'", "'\\ud800'", pb.VERDICT_CORRECT),
        ("1000", "10**3", pb.VERDICT_MALFORMED),
        ("1", "", pb.VERDICT_MALFORMED),
    ],
)
def test_deduction(client: VerifierClient, expected: str, answer: str, verdict: int) -> None:
    response = client.judge_deduction(value(expected), answer)
    assert response.verdict == verdict
    assert response.outcome == pb.OUTCOME_NOT_RUN


@pytest.mark.parametrize(
    ("answer", "verdict", "outcome"),
    [
        ("7", pb.VERDICT_CORRECT, pb.OUTCOME_COMPLETED),
        ("x=2", pb.VERDICT_CORRECT, pb.OUTCOME_COMPLETED),
        ("3", pb.VERDICT_WRONG, pb.OUTCOME_COMPLETED),
        ("'a'", pb.VERDICT_FAILED, pb.OUTCOME_EXCEPTION),
        ("1, 2", pb.VERDICT_FAILED, pb.OUTCOME_EXCEPTION),
        ("0) or (2", pb.VERDICT_MALFORMED, pb.OUTCOME_NOT_RUN),
        ("globals().__setitem__('f', lambda x: 2)", pb.VERDICT_MALFORMED, pb.OUTCOME_NOT_RUN),
    ],
)
def test_abduction(client: VerifierClient, answer: str, verdict: int, outcome: int) -> None:
    response = client.judge_abduction("def f(x):\n    return x % 5 + 0", value("2"), answer)
    assert (response.verdict, response.outcome) == (verdict, outcome)


@pytest.mark.parametrize(
    ("program", "verdict", "outcome"),
    [
        ("def f(x): return x * 2", pb.VERDICT_CORRECT, pb.OUTCOME_COMPLETED),
        ("def f(x): return x + 1", pb.VERDICT_WRONG, pb.OUTCOME_COMPLETED),
        ("def f(x): return 2 if x == 1 else 0", pb.VERDICT_WRONG, pb.OUTCOME_COMPLETED),
        ("def f(x) return", pb.VERDICT_FAILED, pb.OUTCOME_SYNTAX_ERROR),
        ("import os; os._exit(0)", pb.VERDICT_FAILED, pb.OUTCOME_NO_RESULT),
        (
            "class A:\n  def __eq__(s, o): return True\ndef f(x): return A()",
            pb.VERDICT_FAILED,
            pb.OUTCOME_INVALID_RESULT,
        ),
    ],
)
def test_induction(client: VerifierClient, program: str, verdict: int, outcome: int) -> None:
    response = client.judge_induction(program, [("1", value("2")), ("5", value("10"))])
    assert (response.verdict, response.outcome) == (verdict, outcome)
    assert all(case.verdict == pb.VERDICT_CORRECT for case in response.cases[:-1])
    assert response.cases[-1].verdict == verdict


def test_execute_returns_streams_and_status(client: VerifierClient) -> None:
    response = client.execute("import sys\nprint(input())\nprint('e', file=sys.stderr)\nsys.exit(3)", stdin=b"hello")
    assert (response.stdout, response.stderr, response.result.exit_status) == (b"hello\n", b"e\n", 3)
    assert response.result.outcome == pb.OUTCOME_NO_RESULT


def test_server_info_tells_protections_and_limits(client: VerifierClient) -> None:
    info = client.server_info()
    assert all(p.active for p in info.protections)
    assert len(info.protections) >= 20
    assert {row.name: row.maximum for row in info.limits}["memory_bytes"] == 4 << 30
    assert not info.degraded
    assert (info.live_jails, info.live_run_cgroups, info.zombies) == (0, 0, 0)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.ValidateTaskRequest(arguments=["1"]), "program"),
        (pb.ValidateTaskRequest(program=b"x" * (1 << 20) + b"x", arguments=["1"]), "program"),
        (pb.ValidateTaskRequest(program=b"x"), "arguments"),
        (pb.ValidateTaskRequest(program=b"x", arguments=["1"] * 101), "arguments"),
        (pb.ValidateTaskRequest(program=b"x", arguments=["1"], runs=65), "runs"),
        (pb.ValidateTaskRequest(program=b"x", arguments=["1"], entry_point="f()"), "entry_point"),
        (pb.ValidateTaskRequest(program=b"x", arguments=["1"], limits=pb.Limits(memory_bytes=1)), "memory_bytes"),
        (
            pb.ValidateTaskRequest(program=b"x", arguments=["1"], context=pb.RequestContext(run="r" * 300)),
            "context.run",
        ),
        (pb.JudgeAnswerRequest(), "question"),
        (pb.JudgeAnswerRequest(deduction=pb.Deduction(answer="1")), "expected"),
        (pb.JudgeAnswerRequest(deduction=pb.Deduction(expected=pb.Value(canonical=b"Q"), answer="1")), "expected"),
        (pb.JudgeAnswerRequest(induction=pb.Induction(program=b"x")), "cases"),
        (pb.JudgeAnswerRequest(induction=pb.Induction(program=b"x", cases=[pb.Case(arguments="y")])), "cases[0]"),
        (pb.ExecuteRequest(program=b"x", stdin=b"x" * (16 << 20) + b"x"), "stdin"),
        (pb.ValidateTaskRequest(program=b"x", arguments=["1"], draws=1001), "draws"),
        (pb.ValidateTaskRequest(program=b"x", arguments=["1"], allowed_modules=["a.b"]), "allowed_modules"),
        (pb.RunCasesRequest(program=b"x"), "cases"),
        (pb.RunCasesRequest(program=b"x", cases=[pb.TestCase()] * 2001), "cases"),
        (pb.RunCasesRequest(program=b"x", cases=[pb.TestCase(arguments="1")]), "cases[0].expected"),
        (pb.RunCasesRequest(program=b"x", cases=[pb.TestCase(arguments="y")], reference=b"x"), "cases[0].arguments"),
        (pb.RunCasesRequest(program=b"x", entry_point="a.b.c", cases=[pb.TestCase()], reference=b"x"), "entry_point"),
        (
            pb.RunCasesRequest(program=b"x", reference=b"x", cases=[pb.TestCase()], comparator=pb.Comparator(preset=4)),
            "comparator.preset",
        ),
        (
            pb.RunCasesRequest(
                program=b"x", reads_stdin=True, cases=[pb.TestCase()], comparator=pb.Comparator(preset=3)
            ),
            "comparator.preset",
        ),
        (
            pb.RunCasesRequest(
                program=b"x", reference=b"x", cases=[pb.TestCase()], comparator=pb.Comparator(preset=99)
            ),
            "comparator.preset",
        ),
        (
            pb.RunCasesRequest(
                program=b"x",
                reference=b"x",
                cases=[pb.TestCase()],
                comparator=pb.Comparator(absolute_tolerance=float("nan")),
            ),
            "comparator.absolute_tolerance",
        ),
        (
            pb.RunCasesRequest(
                program=b"x",
                reference=b"x",
                cases=[pb.TestCase()] * 2000,
                return_outputs=True,
                limits=pb.Limits(value_bytes=1 << 20),
            ),
            "value_bytes",
        ),
        (pb.RunScriptRequest(program=b"x"), "script"),
    ],
)
def test_a_wrong_request_is_refused_by_name(client: VerifierClient, request_: object, field: str) -> None:
    method = {
        pb.ValidateTaskRequest: "ValidateTask",
        pb.JudgeAnswerRequest: "JudgeAnswer",
        pb.ExecuteRequest: "Execute",
        pb.RunCasesRequest: "RunCases",
        pb.RunScriptRequest: "RunScript",
    }
    with pytest.raises(RequestRefusedError, match=field.replace("[", r"\[")):
        client.call(getattr(client._stub, method[type(request_)]), request_)


def test_health_and_reflection_answer(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "populora.verifier.v1.Verifier"):
            reply = health.Check(health_pb2.HealthCheckRequest(service=service))
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
        services = ProtoReflectionDescriptorDatabase(channel).get_services()
        assert {"populora.verifier.v1.Verifier", "grpc.health.v1.Health"} <= set(services)


def test_a_forged_hook_event_cannot_turn_a_failure_into_a_status(client: VerifierClient) -> None:
    forge = "import os\ndata = b'[\"\\\\ud800\", \"x\"]'\nos.write(3, b'H' + len(data).to_bytes(4, 'little') + data)\n"
    assert client.judge_induction(forge + "def f(x): return 0", [("1", value("2"))]).verdict == pb.VERDICT_WRONG
    assert client.execute(forge).result.outcome == pb.OUTCOME_COMPLETED


@pytest.mark.parametrize("text", ["1" * 400 + "+1j", "1+" * 1500 + "1", "-\\\n" * 1500 + "1"])
def test_no_answer_text_becomes_a_status(client: VerifierClient, text: str) -> None:
    assert client.judge_deduction(value("1"), text).verdict == pb.VERDICT_MALFORMED
    assert client.judge_abduction("def f(x): return x", value("1"), text).verdict == pb.VERDICT_MALFORMED
    assert list(client.validate_task("def f(x): return x", [text]).reasons) == [pb.REASON_MALFORMED_ARGUMENTS]


@pytest.mark.parametrize(
    "program", ["def f(n): return '-' * n", "def f(n): return '(' * n", "def f(n): return [['['] * n]"]
)
def test_the_literal_of_every_valid_value_is_a_right_answer(client: VerifierClient, program: str) -> None:
    response = client.validate_task(program, ["70"], runs=1)
    assert response.valid
    found = response.results[0].value
    assert client.judge_deduction(found, found.literal).verdict == pb.VERDICT_CORRECT


def test_a_value_that_nobody_could_write_down_is_rejected_at_validation(client: VerifierClient) -> None:
    response = client.validate_task("def f(): return [None] * 16000", [""])
    assert list(response.reasons) == [pb.REASON_RUN_FAILED]
    assert "literal" in response.detail


def test_a_program_with_a_huge_constant_is_no_syntax_error(client: VerifierClient) -> None:
    assert client.validate_task(f"def f(x): return x & 0x{'f' * 8000}", ["5"]).valid


def test_the_hash_does_not_depend_on_any_chosen_name(client: VerifierClient) -> None:
    form = "def f({a}, {b}=1):\n    try:\n        return g({b}={a})\n    except ValueError as {e}:\n        return {b}\ndef g({b}):\n    return {b}"
    names = ({"a": "x", "b": "y", "e": "z"}, {"a": "sum", "b": "k", "e": "error"})
    hashes = {client.validate_task(form.format(**n), ["1"], runs=1).features.ast_hash for n in names}
    assert len(hashes) == 1


def test_values_that_cannot_fit_into_a_response_are_refused_at_once(client: VerifierClient) -> None:
    with pytest.raises(RequestRefusedError, match="value_bytes"):
        client.validate_task("def f(): return 1", [""] * 100, limits=pb.Limits(value_bytes=1 << 20))


def test_a_program_sees_dicts_and_keywords_in_the_order_of_the_text(client: VerifierClient) -> None:
    program = "def f(table, **more): return [list(table), list(more)]"
    response = client.validate_task(program, ["{'b': 1, 'a': {2: 0, 1: 0}}, z=1, y={'d': 1, 'c': 2}"], runs=2)
    assert response.results[0].value.literal == "[['b', 'a'], ['z', 'y']]"
    right = client.judge_abduction(program, response.results[0].value, "{'b': 0, 'a': 0}, z=1, y=1")
    wrong = client.judge_abduction(program, response.results[0].value, "{'a': 0, 'b': 0}, z=1, y=1")
    assert (right.verdict, wrong.verdict) == (pb.VERDICT_CORRECT, pb.VERDICT_WRONG)


def test_induction_ends_with_the_first_case_that_is_not_right(client: VerifierClient) -> None:
    cases = [("1", value("1")), ("2", value("3")), ("3", value("3"))]
    response = client.judge_induction("def f(x): return x", cases)
    assert (response.verdict, len(response.cases)) == (pb.VERDICT_WRONG, 2)
