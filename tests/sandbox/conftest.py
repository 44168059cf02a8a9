"""Every test here starts real jails."""

from collections.abc import Iterator

import pytest

from tests.conftest import EngineThread


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/sandbox" in str(item.path):
            item.add_marker(pytest.mark.nsjail)


@pytest.fixture(autouse=True)
def nothing_left_over(engine: EngineThread) -> Iterator[None]:
    """After every program, no jail, cgroup or process of it lives on, and the next run is unaffected."""
    yield
    counts = engine.engine.count_live()
    assert (counts.jails, counts.run_cgroups) == (0, 0)
