"""Data, model classes, callbacks and settings with the techniques: the same training, or a refusal."""

import pytest
from tests.integration.exactness.cases_usage import CALLBACKS, CLASSES_OF_MODELS, DATA, SETTINGS
from tests.integration.exactness.harness import outcome, pairs


@pytest.mark.parametrize(("case", "technique"), pairs(DATA, CLASSES_OF_MODELS, CALLBACKS, SETTINGS))
def test_equal_or_refused(case, technique, record_property):
    record_property("exactness", outcome(case, technique))
