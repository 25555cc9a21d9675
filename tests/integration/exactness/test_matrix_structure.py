"""Layers that keep state, nested models and added losses with the techniques: the same training, or a refusal."""

import pytest
from tests.integration.exactness.cases_layers import STATE_AND_STRUCTURE
from tests.integration.exactness.harness import outcome, pairs


@pytest.mark.parametrize(("case", "technique"), pairs(STATE_AND_STRUCTURE))
def test_equal_or_refused(case, technique, record_property):
    record_property("exactness", outcome(case, technique))
