"""Every kind of layer with the techniques: the same training, or a refusal."""

import pytest
from tests.integration.exactness.cases_layers import LAYERS
from tests.integration.exactness.harness import outcome, pairs


@pytest.mark.parametrize(("case", "technique"), pairs(LAYERS))
def test_equal_or_refused(case, technique, record_property):
    record_property("exactness", outcome(case, technique))
