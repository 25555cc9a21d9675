from tests.unit.lint.looking import becomes, fine, flagged

FLAGGED = [
    """
    @tf.function
    def step(x, number):
        return x * number

    for number in range(1000):
        step(x, number)  # <-
    """,
    """
    @tf.function
    def step(x, number):
        return x * number

    for number, x in enumerate(data):
        step(x, number=number)  # <-
    """,
    """
    def forward(x, epoch):
        return x * epoch

    fast = tf.function(forward)
    for epoch in range(epochs):
        for x in data:
            fast(x, epoch)  # <-
    """,
    """
    class Trainer:
        @tf.function(jit_compile=True)
        def step(self, x, rate):
            return x * rate

        def run(self):
            for number in range(100):
                self.step(x, number / 100)  # <-
    """,
]

FINE = [
    """
    @tf.function
    def step(x, number):
        return x * number

    for number in range(1000):
        step(x, tf.constant(number))
    """,
    """
    @tf.function
    def step(x, number):
        return x * number

    for number in tf.range(1000):
        step(x, number)
    """,
    """
    @tf.function(input_signature=[tf.TensorSpec([]), tf.TensorSpec([])])
    def step(x, number):
        return x * number

    for number in range(1000):
        step(x, number)
    """,
    """
    def step(x, number):
        return x * number

    for number in range(1000):
        step(x, number)
    """,
    """
    @tf.function
    def step(x, number):
        return x * number

    for number in range(3):
        step(x, number)
    """,
    """
    @tf.function
    def step(x, number):
        return x * number

    for number in range(1000):
        step(data[number], scale)
    """,
]

FIXED = [
    (
        """
        @tf.function
        def step(x, number):
            return x * number

        for number in range(1000):
            step(x, number)  # counted
        """,
        """
        @tf.function
        def step(x, number):
            return x * number

        for number in range(1000):
            step(x, tf.constant(number))  # counted
        """,
    ),
]

test_flagged = flagged("MF018", FLAGGED)
test_fine = fine("MF018", FINE)
test_fixed = becomes("MF018", FIXED, unsafe=True)
