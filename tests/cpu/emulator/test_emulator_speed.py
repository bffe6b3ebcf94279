"""A product of 1024 x 1024 x 1024 on the emulator, every check on: well within a minute of processor time. An ordinary
run takes a nineteenth of it, in a nineteenth of the time."""

import time

from covering import ALL
from simt_product import problem, run


def test_a_large_product_takes_less_than_a_minute(record_property):
    size, most_seconds = (1024, 60) if ALL else (384, 3.2)
    start = time.process_time()
    result = run(problem(size, size, size, "float16"), "mma-final")
    seconds = time.process_time() - start
    assert result.correct
    counters = result.report.counters
    assert counters["tensor_flops"] == 2 * size**3
    rate = 32 * counters["warp_instructions"] / seconds
    record_property("thread_instructions_per_second", round(rate))
    assert seconds < most_seconds, f"{seconds:.1f} s, {rate:.3g} thread instructions a second"
