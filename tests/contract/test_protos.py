"""The committed stubs are what `make protos` generates."""

import subprocess
import sys
from pathlib import Path

import google.rpc

from tests.conftest import ROOT

STUBS = "populora/verifier/v1"


def test_the_stubs_have_not_drifted(tmp_path: Path) -> None:
    include = Path(next(iter(google.rpc.__path__))).parent.parent
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(ROOT / "protos"), "-I", str(include)]
    outs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    subprocess.run([*command, *outs, str(ROOT / "protos" / STUBS / "verifier.proto")], check=True, capture_output=True)
    for generated in (tmp_path / STUBS).iterdir():
        committed = ROOT / "protos/python" / STUBS / generated.name
        assert committed.read_text() == generated.read_text(), f"{generated.name} drifted: run `make protos`"


def test_every_enum_value_of_the_contract_has_its_twin_in_the_service() -> None:
    from populora.verifier.v1 import verifier_pb2 as pb

    from verifier_server.domain import Evidence, Outcome, Reason, Verdict

    for enum, prefix, domain in (
        (pb.Outcome, "OUTCOME_", Outcome),
        (pb.Evidence, "EVIDENCE_", Evidence),
        (pb.Verdict, "VERDICT_", Verdict),
        (pb.Reason, "REASON_", Reason),
    ):
        names = {name.removeprefix(prefix).lower() for name in list(enum.keys())} - {"unspecified"}
        assert names == {str(member) for member in domain}
