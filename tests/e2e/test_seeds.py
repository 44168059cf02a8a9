"""Every seed task is valid at the real verifier."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from populora.verifier import VerifierClient

from trainer.tasks.seeds import load_seeds

pytestmark = pytest.mark.nsjail


def test_all_seed_tasks_are_valid_short_and_distinct(client: VerifierClient) -> None:
    seeds = load_seeds()
    assert len(seeds) >= 60
    with ThreadPoolExecutor(4) as pool:
        responses = list(pool.map(lambda seed: client.validate_task(seed.program, seed.inputs, runs=3, draws=6), seeds))
    for seed, response in zip(seeds, responses, strict=True):
        assert response.valid, (seed.program, response.detail)
        assert 1 <= seed.program.count("\n") + 1 <= 6
        assert len(seed.inputs) == 4
        assert not {f.code for f in response.findings} & {
            "reads_clock",
            "reads_entropy",
            "constant_output",
            "unused_parameter",
        }
    assert len({response.features.ast_hash for response in responses}) == len(seeds)
