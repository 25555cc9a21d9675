from memfit.hardware.probe import probe


def test_tensorflow_answers_in_a_child_process():
    answer = probe(timeout=120)
    assert answer.error is None
    assert answer.auto_jit is bool(answer.gpus)


def test_a_tensorflow_that_takes_too_long_is_given_up():
    assert "did not answer within" in probe(timeout=0.1).error


def test_determinism_in_the_environment_turns_auto_jit_off_as_the_doctor_says(run_child):
    assert run_child(
        """
        import tensorflow as tf
        from tensorflow.python.framework.config import is_op_determinism_enabled
        report(is_op_determinism_enabled())
        """,
        TF_DETERMINISTIC_OPS="1",
    )
