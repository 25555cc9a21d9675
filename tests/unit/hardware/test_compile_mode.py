import pytest

from memfit.hardware.compile_mode import auto_jit


@pytest.mark.parametrize(
    ("target", "value", "reason"),
    [
        ({"gpu": True}, True, "sees a GPU"),
        ({"gpu": False}, False, "no GPU"),
        ({"gpu": None}, None, "not known"),
        ({"gpu": True, "distributed": True}, False, "strategy"),
        ({"gpu": True, "deterministic": True}, False, "determinism"),
        ({"gpu": True, "unsupported_layers": ["lstm"]}, False, "lstm"),
    ],
)
def test_auto_is_resolved_as_keras_does(target, value, reason):
    resolved = auto_jit(**target)
    assert resolved.value is value
    assert reason in resolved.reason
