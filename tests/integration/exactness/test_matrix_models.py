"""Classes of models, seeds and settings with the techniques: the same training, or a refusal."""

import pytest
from tests.integration.exactness.cases_usage import CLASSES_OF_MODELS, SETTINGS
from tests.integration.exactness.harness import outcome, pairs


@pytest.mark.parametrize(("case", "technique"), pairs(CLASSES_OF_MODELS, SETTINGS))
def test_equal_or_refused(case, technique, record_property):
    record_property("exactness", outcome(case, technique))
