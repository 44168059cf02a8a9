"""How often is a noisy task caught before its teacher is paid, and what does that cost?

A teacher that answers differently with probability 0.1 gets 0 < rho < 1 for nothing. Programs with noise from several
sources are validated again and again; a catch is NONDETERMINISTIC. The same share is shown for three runs alone, which
is what other projects do, with the time of a validation for both, as a ratio within this run.

    python -m benchmarks.noise --trials 300
"""

import time
from dataclasses import dataclass

from populora.verifier import VerifierClient
from populora.verifier.v1 import verifier_pb2 as pb

from benchmarks import harness

_EARLY = "import os, random\ndef f(x): return "
# Each answers 1 in one tenth of its runs, else 0.
PROGRAMS = {
    "entropy": "import random\ndef f(x): return int(random.random() < 0.1)",
    "operating system's entropy": "import os\ndef f(x): return int(os.urandom(1)[0] < 26)",
    "clock": "import time\ndef f(x): return int(time.time_ns() // 1000 % 10 == 0)",
    "address of an object": "def f(x): return int(id(object()) // 4096 % 10 == 0)",
    "address in a text": "def f(x): return int(int(str(lambda: 0).split()[-1][2:-1], 16) // 4096 % 10 == 0)",
    "hash seed": "def f(x): return int(hash('a') % 10 == 0)",
    "order of a set": "def f(x): return int(list({'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j'})[0] == 'j')",
    "a function in a text": "def g(): pass\ndef f(x): return int(int(('%s' % g)[-8:-1], 16) >> 24 in (3, 11))",
    # Noise that tries to keep still where it thinks it is validated: in later runs of a jail.
    "entropy in early processes": f"{_EARLY}int(os.getpid() < 60 and random.random() < 0.1)",
    "entropy in early files": f"{_EARLY}int(os.stat('.').st_ino < 60 and random.random() < 0.1)",
    "none (an honest task)": "def f(x): return sorted(str(x))",
    "none (an honest task with a set)": "def f(x): return len({str(i) for i in range(x)})",
}


@dataclass(frozen=True)
class Trials:
    """Validations of one program: how many caught, and the mean time in a slot."""

    caught: int
    count: int
    seconds: float

    @property
    def share(self) -> float:
        """Share caught."""
        return self.caught / self.count


def validate(
    client: VerifierClient, program: str, count: int, workers: int, *, runs: int = 0, draws: int = 0
) -> Trials:
    """Validate `count` times."""

    def once(_: int) -> tuple[bool, float]:
        start = time.monotonic()
        response = client.validate_task(program, ["7"], runs=runs, draws=draws)
        assert response.valid or list(response.reasons) == [pb.REASON_NONDETERMINISTIC], response.detail
        return not response.valid, time.monotonic() - start

    results = harness.map_parallel(once, range(count), workers=workers, title=program[:40])
    return Trials(sum(caught for caught, _ in results), count, sum(seconds for _, seconds in results) / count)


def main() -> None:
    """Run the benchmark."""
    parser = harness.make_parser(__doc__)
    parser.add_argument("--trials", type=int, default=300, help="validations of each noisy program")
    options = parser.parse_args()
    rows, figures = [], {}
    with (
        harness.open_verifier(options.address) as verifier,
        VerifierClient(verifier.address, timeout_s=600, patience_s=600) as client,
    ):
        workers = client.server_info().slots
        for name, program in PROGRAMS.items():
            count = options.trials if not name.startswith("none") else max(1, options.trials // 10)
            ours = validate(client, program, count, workers)
            # One run in each of three interpreters.
            three = validate(client, program, max(1, count // 10), workers, runs=3, draws=3)
            ratio = ours.seconds / three.seconds
            rows.append((name, f"{ours.share:.1%}", f"{three.share:.1%}", f"{ours.seconds:.2f}", f"{ratio:.1f}x"))
            figures[name] = {"caught": ours.share, "trials": count, "cost_ratio": round(ratio, 2)}
    harness.print_table(
        "noise with probability 0.1", ("source", "caught", "by three runs", "seconds", "cost against three runs"), rows
    )
    harness.print_result(benchmark="noise", **figures)


if __name__ == "__main__":
    main()
