"""Launches rows of the suites once each, as planned: the program that runs under Nsight Compute.

    python -m warptile.bench.profiling.launch_rows REQUESTS.json

Every participant has a stream of its own, by which its kernels are told from the next one's, and was launched before
anything is counted, so that loading and workspaces are over. Dense operands are cut from one piece of random numbers.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from warptile.bench.baselines.cublaslt import WORKSPACE_BYTES, CublasLt
from warptile.bench.campaign.ladder_sweep import SEED, begin_of
from warptile.bench.profiling.ncu import launch_each
from warptile.bench.profiling.row_counters import CountRequest
from warptile.bench.protocol.measure_rows import GpuModel
from warptile.bench.protocol.operand_pool import OperandPool, PooledProduct
from warptile.bench.protocol.workloads import to_problem
from warptile.gpu import driver
from warptile.gpu.timing import Candidate
from warptile.runtime.device_product import DeviceProduct, Launcher
from warptile.runtime.execute import planned

ONE_SET = 0
"""The size of an L2 that keeps nothing: one set of operands. Nsight Compute empties the caches before each pass."""


class RowLauncher:
    """Holds operands, kernels and cuBLASLt for the requested rows, and makes their launches."""

    def __init__(self, requests: list[CountRequest]) -> None:
        driver.enter()
        about = driver.device_info()
        self.device = GpuModel(about.arch, about.name)
        self._launcher, self._library = Launcher(), CublasLt()
        self._kept: list[DeviceProduct] = []  # a candidate has addresses alone
        self._workspace = driver.Allocation(WORKSPACE_BYTES)
        problems = [to_problem(each.key, offset=each.offset) for each in requests if not each.key.sparse]
        elements = dict.fromkeys(problem.a.dtype for problem in problems)
        self._pools = {
            element: OperandPool(element, [each for each in problems if each.a.dtype == element], ONE_SET, SEED)
            for element in elements
        }

    def candidate(self, request: CountRequest) -> Candidate:
        """Launches of one participant."""
        problem = to_problem(request.key, offset=request.offset)
        product: DeviceProduct | PooledProduct
        if problem.a.sparse:
            product = DeviceProduct(problem, sets=1, seed=SEED, offset_elements=request.offset)
            self._kept.append(product)
        else:
            product = PooledProduct(
                problem, self._pools[problem.a.dtype], self._launcher, ONE_SET, offset_elements=request.offset
            )
        if request.algorithm is None:
            return product.candidate(planned(problem, self.device, max_sms=request.max_sms))
        library = self._library.product(request.key, begin_of(problem, request.offset))
        names = [library.name(index) for index in range(len(library))]
        if request.algorithm not in names:
            raise LookupError(f"{self._library.version} does not offer {request.algorithm}: measure the suite again")
        index, at = names.index(request.algorithm), product.pointers(0)
        return Candidate(
            lambda _, stream: library.launch(index, at["A"], at["B"], at["D"], self._workspace.address, stream), 1
        )


def main(path: str) -> int:
    """Launch all requests of a file; 1 when one failed."""
    requests = msgspec.json.decode(Path(path).read_bytes(), type=list[CountRequest])
    rows, streams = RowLauncher(requests), []

    def launch(request: CountRequest) -> None:
        candidate, stream = rows.candidate(request), driver.Stream()
        streams.append(stream)  # kept, so that no later one takes its number
        candidate.launch(0, stream.handle)
        stream.synchronize()
        with driver.profiled():
            candidate.launch(0, stream.handle)
            stream.synchronize()

    return launch_each(requests, launch)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
