"""What `memfit run --budget` says before it plans."""

from types import SimpleNamespace

import pytest

from memfit.script.sessions import _plain_sentence
from memfit.units import MIB


@pytest.mark.parametrize(
    ("budget", "changed", "said"),
    [
        (70, False, "within 70 MiB"),
        (50, False, "within 50 MiB"),
        (61, True, "with holes between tensors, more than 61 MiB"),
        (50, True, "it may take 60 MiB, more than 50 MiB"),
        (30, True, "more than 30 MiB"),
    ],
)
def test_a_prediction_is_compared_with_the_budget_as_the_planner_does(budget, changed, said):
    plain = SimpleNamespace(
        steady_peak=SimpleNamespace(value=45 * MIB, high=60 * MIB),
        breakdown=lambda: {"gradients": 30, "parameters": 10},
    )
    sentence = _plain_sentence(plain, budget * MIB, changed=changed)
    assert sentence == f"predicted peak without changes: 45 MiB, 75 % of it gradients; {said}"
