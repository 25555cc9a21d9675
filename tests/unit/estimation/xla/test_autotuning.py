from memfit.estimation.xla.autotuning import Candidate, announced, candidates, results_text
from memfit.estimation.xla.convolution import from_key
from memfit.hardware.cudnn import Kernel

MODEL = "CUDA: 9.0, Cores: 132, GPU clock: 1.98 GHz"
CONVOLUTION = (
    "(f32[16,224,224,64]{3,2,1,0}, u8[0]{0}) custom-call(f32[16,224,224,3]{3,2,1,0}, f32[64,3,3,3]{3,2,1,0}), "
    'window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convForward"'
)
LOG = f"""\
I1115 autotuner.cc:161] Finding configs for 2 unique instructions.
I1115 autotuner_util.cc:405] Autotune cache miss: key = <key model='{MODEL}', hlo='{CONVOLUTION}', version=21>
I1115 autotuner_util.cc:405] Autotune cache miss: key = <key model='{MODEL}', hlo='{{
  tmp_0 = f32[16,16]{{1,0}} parameter(0)
}}', version=21>
"""


def dot(rows, length, columns):
    return (
        f"{{\n  tmp_0 = f32[{length},{columns}]{{1,0}} parameter(0)\n"
        f"  tmp_1 = f32[{rows},{length}]{{1,0}} parameter(1)\n"
        f"  ROOT tmp_2 = f32[{columns},{rows}]{{0,1}} dot(f32[{length},{columns}]{{1,0}} tmp_0, "
        f"f32[{rows},{length}]{{1,0}} tmp_1), lhs_contracting_dims={{0}}, rhs_contracting_dims={{1}}\n}}"
    )


def test_the_log_says_how_many_there_are_and_which():
    assert announced(LOG) == 2
    found = candidates(LOG)
    assert found[0] == Candidate(MODEL, CONVOLUTION, 21)
    assert "parameter(0)" in found[1].hlo


def test_a_log_without_autotuning_announces_nothing():
    assert announced("I1115 pjrt_api.cc:118] ready") is None
    assert candidates("") == ()


def test_a_convolution_gets_its_likely_workspace():
    text = results_text([Candidate(MODEL, CONVOLUTION, 21)], 132, {})
    size = 16 * 224 * 224 * 3 * 4 + 64 * 3 * 3 * 3 * 4
    assert f"workspace_size {{ value: {size} }}" in text
    assert "version: 21" in text
    assert text.startswith("version: 3\n")


def test_keys_are_quoted_for_the_text_format():
    text = results_text([Candidate(MODEL, CONVOLUTION, 21)], 132, {})
    assert '\\"__cudnn$convForward\\"' in text
    assert text.count("\n") == 2


def test_a_long_sum_into_a_small_output_is_left_to_cublas():
    assert "gemm" in results_text([Candidate(MODEL, dot(16, 25088, 4096), 21)], 132, {})


def test_other_matrix_products_keep_the_compilers_choice():
    for hlo in (dot(64, 2048, 1000), dot(4096, 16384, 4096)):
        assert "results" not in results_text([Candidate(MODEL, hlo, 21)], 132, {})


def test_a_convolution_gets_the_workspace_of_the_first_kernel_that_cudnn_offers():
    problem = from_key(CONVOLUTION).problem
    offered = {problem: (Kernel(48, 6294928), Kernel(28, 0))}
    assert "value: 6294928 " in results_text([Candidate(MODEL, CONVOLUTION, 21)], 132, offered)
