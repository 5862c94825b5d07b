"""Each guard is needed: without it a test fails."""

import pytest

from tests.protocol import mutations


@pytest.mark.long
@pytest.mark.parametrize("mutation", mutations.MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_weakened_guard_is_caught(mutation: mutations.Mutation) -> None:
    assert mutations.killer(mutation) is not None
