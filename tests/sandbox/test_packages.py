"""The optional guest image: other modules beside the standard library, within documented minimum limits."""

import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness import MemoryCap
from tests.conftest import MIB, EngineThread, make_run
from verifier_server.domain import Outcome
from verifier_server.errors import SetupError
from verifier_server.judging import codec
from verifier_server.sandbox.nsjail import NsjailEngine

# As docs/operations.md says: the least that the service allows is enough for numpy.
MINIMUM = {"memory_bytes": 32 * MIB, "processes": 1, "tmp_bytes": 1 * MIB}


@pytest.fixture(scope="module")
def numpy_engine(
    engine: EngineThread, state_dir: Path, memory_cap: MemoryCap, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineThread]:
    """The numpy of this environment serves, if jails run the same Python as the tests."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}."
    if not engine.info.python_version.startswith(version):
        pytest.skip(f"jails run Python {engine.info.python_version}, the tests' numpy is for {version}x")
    packages = tmp_path_factory.mktemp("packages")
    for name in ("numpy", "numpy.libs"):
        shutil.copytree(
            Path(sysconfig.get_path("purelib")) / name, packages / name, ignore=shutil.ignore_patterns("tests")
        )
    with memory_cap.inside():
        thread = EngineThread(state_dir, packages=packages)
    yield thread
    thread.close()


def test_numpy_runs_under_the_least_limits(numpy_engine: EngineThread) -> None:
    program = "import numpy as np\ndef f(): return [float(np.linalg.inv(np.eye(300)).sum()), int(np.arange(10).sum())]"
    result = numpy_engine.run(make_run(program, **MINIMUM))[0]
    assert result.value is not None, result
    assert codec.decode(result.value) == [300.0, 45]
    assert result.usage.peak_processes == 1, "BLAS has one thread"


def test_more_of_numpy_dies_of_no_denied_call(numpy_engine: EngineThread) -> None:
    program = (
        "import numpy as np\ndef f():\n  r = np.random.default_rng(0)\n  a = r.random((200, 200))\n"
        "  return [np.linalg.svd(a).S.shape, np.fft.fft(a[0]).shape, (a @ a).shape, np.sort(a, axis=None)[:2].shape,"
        " np.linalg.solve(a, a[0]).shape, np.polyfit(range(9), range(9), 2).shape]"
    )
    result = numpy_engine.run(make_run(program, cpu_time_s=5.0))[0]
    assert result.outcome is Outcome.COMPLETED, result


def test_numpy_values_have_a_lenient_form_and_no_exact_one(numpy_engine: EngineThread) -> None:
    from dataclasses import replace

    run = make_run("import numpy as np\ndef f(): return [np.float64(1.5), np.arange(3), np.int64(7), np.bool_(True)]")
    assert numpy_engine.run(run)[0].outcome is Outcome.INVALID_RESULT
    lenient = numpy_engine.run(replace(run, lenient=True))[0]
    assert codec.decode(lenient.value) == [1.5, [0, 1, 2], 7, True]


def test_the_image_says_what_it_has_and_is_another_one(engine: EngineThread, numpy_engine: EngineThread) -> None:
    assert numpy_engine.info.packages == ("numpy",)
    assert engine.info.packages == ()
    assert engine.info.image_digest != numpy_engine.info.image_digest
    missing = engine.run(make_run("import numpy\ndef f(): pass"))[0]
    assert missing.claim.startswith("ModuleNotFoundError")


def test_packages_are_read_only(numpy_engine: EngineThread) -> None:
    program = (
        "import numpy\ndef f():\n  try: open(numpy.__file__, 'a')\n  except OSError as e: return e.errno in (13, 30)"
    )
    assert numpy_engine.run(make_run(program))[0].value == b"T"


def test_a_missing_folder_is_explained(state_dir: Path) -> None:
    broken = NsjailEngine(state_dir=state_dir, python="/usr/bin/python3", packages=Path("/no/such/folder"))
    with pytest.raises(SetupError, match="guest-packages"):
        broken.start()
    broken.close()
