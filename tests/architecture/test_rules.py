"""The dependency rules of the project, and habits that a tool can see."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

SOURCES = sorted(
    path for folder in ("verifier_server", "trainer", "benchmarks") for path in (ROOT / folder).rglob("*.py")
)


def test_import_rules_hold() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_stay_readable(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 500
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno <= 60, f"{node.name} is too long"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_code_evaluates_text(path: Path) -> None:
    """Only the guest runs programs; nothing in service or trainer evaluates, compiles or unpickles."""
    if "guest" in path.parts:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"eval", "exec", "compile", "__import__"}
        if isinstance(node, ast.Import):
            assert not {alias.name for alias in node.names} & {"pickle", "marshal", "shelve"}


def test_the_guest_uses_only_the_standard_library_and_radon() -> None:
    allowed = set(sys.stdlib_module_names) | {"radon", "codec", "run", "clock", "analyze"}
    for path in [*(ROOT / "verifier_server/sandbox/guest").glob("*.py"), ROOT / "verifier_server/judging/codec.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, path


def test_trust_remote_code_is_never_true() -> None:
    for path in SOURCES:
        assert "trust_remote_code=True" not in path.read_text()


def test_the_threat_model_counts_the_attacks_that_there_are() -> None:
    from verifier_server.selftest.suite import ATTACKS, CLASSES

    text = (ROOT / "docs/threat-model.md").read_text()
    for name, attacks in CLASSES.items():
        assert f"| {name} | {len(attacks)} |" in text, (name, len(attacks))
    assert f"sends {len(ATTACKS)} hostile programs" in (ROOT / "README.md").read_text()
