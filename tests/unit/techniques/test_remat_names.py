from memfit.techniques.remat import renamed

BEFORE = ["conv2d_4", "block_1/conv2d_5", "block_1/add_2", "dense_7"]
AFTER = ["conv2d_8", "block_2/conv2d_9", "block_2/add_6", "dense_1"]


def test_names_ranges_and_nested_names_follow_the_layers():
    value = ("conv2d_4", "block_1/conv2d_5..dense_7", "block_1", "add_2")
    assert renamed(value, BEFORE, AFTER) == ("conv2d_8", "block_2/conv2d_9..dense_1", "block_2", "add_6")


def test_a_number_of_segments_has_no_names():
    assert renamed(4, BEFORE, AFTER) == 4
