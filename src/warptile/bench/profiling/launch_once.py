"""Launch each rung of a list once: the program that runs under Nsight Compute and compute-sanitizer.

    python -m warptile.bench.profiling.launch_once REQUESTS.json

Operands and workspaces have memory of exactly their size, so that an access beyond them is seen. After each request's
launches, and after they have ended, one line says so; a launch that failed says why, and the rest goes on.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from warptile.bench.profiling.ncu import launch_each
from warptile.bench.profiling.profile import LaunchRequest
from warptile.bench.protocol.workloads import to_problem
from warptile.gpu import driver, loader
from warptile.gpu.workspaces import UNKNOWN
from warptile.planning.plan import make_plan
from warptile.runtime.execute import compiled, copy_launches
from warptile.runtime.host_operands import host_operands


def launch(request: LaunchRequest, arch: str) -> None:
    """Compile, copy, launch what comes before the product, launch the product, and wait."""
    problem = to_problem(request.problem, with_c=request.beta != 0)
    plan = make_plan(problem, rung=request.rung, config=request.config, arch=arch)
    kernel = compiled(plan)
    memory = {name: driver.Allocation.from_array(array) for name, array in host_operands(problem).items()}
    for workspace in plan.kernel.workspaces:
        memory[workspace.name] = driver.Allocation(workspace.bytes)
        memory[workspace.name].fill(0 if workspace.zero else UNKNOWN)
    launches = [*copy_launches(plan), (kernel, plan.launch(kernel.entry, request.alpha, request.beta))]
    for each_kernel, spec in launches:
        loader.load(each_kernel).launch(spec, {name: each.address for name, each in memory.items()})
    driver.synchronize()
    for each in memory.values():
        each.close()


def main(path: str) -> int:
    """Launch all requests of a file; 1 when one failed."""
    requests = msgspec.json.decode(Path(path).read_bytes(), type=list[LaunchRequest])
    driver.enter()
    arch = driver.device_info().arch
    return launch_each(requests, lambda request: launch(request, arch))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
