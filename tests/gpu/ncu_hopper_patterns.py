"""What Nsight Compute's metrics count of asynchronous copies and products: every metric that may, on every pattern.

    python tests/gpu/ncu_hopper_patterns.py FOLDER

writes into FOLDER ``metrics_gh100.txt`` (all metrics of the chip), ``hopper_counts.json`` (the value of every chosen
metric for every pattern of tests/support/hopper_patterns.py), ``table.txt`` (the metrics that tell the patterns apart)
and ``counts.txt`` (what tests/data/hopper_counts_h200.json holds). Needs a GPU of compute capability 9.0 and ncu.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from hopper_patterns import GLOBAL_BYTES, METRICS, PATTERNS, text

CHOSEN = re.compile(
    r"tma|gmma|multicast|^l1tex__data_bank|^l1tex__data_pipe_(lsu_)?wavefronts(_mem_shared.*)?$"
    r"|^l1tex__m_(xbar2l1tex|l1tex2xbar)_[a-z]+_(bytes|sectors|requests)(_mem_global.*|_mem_shared.*|_pipe_.*)?$"
    r"|^lts__t_(sectors|requests|bytes)(_srcunit_tex)?(_op_(read|write|red))?$"
    r"|^smsp__(sass_)?inst_executed(_pipe_(tensor|lsu|uniform|tma)[a-z0-9_]*|_op_(shared|ld|st)[a-z_]*)?$"
    r"|^smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared.*|^smsp__sass_data_bytes_mem_(shared|global).*"
)
LEFT_OUT = re.compile(r"throughput|pct|cycles_|_hit|atom|texture|surface|local|_per_|average|evict|issue|lookup")
FIRST = (
    "smsp__inst_executed_pipe_tensor_op_gmma", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma",
    "smsp__sass_data_bytes_mem_shared_op_gmma", "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_gmma",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_stsm", "sm__inst_executed_pipe_tensor_op_gmma",
    "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st", "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_red",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_gmma", "smsp__sass_inst_executed_op_tma_ld",
    "smsp__sass_inst_executed_op_tma_st", "smsp__sass_inst_executed_op_tma_red",
    "l1tex__m_xbar2l1tex_read_bytes", "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld",
    "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld_dest_self",
    "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld_dest_multicast",
    "l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld",
    "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st", "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_red",
    "l1tex__data_bank_reads", "l1tex__data_bank_writes", "l1tex__data_pipe_lsu_wavefronts",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared", "lts__t_sectors_op_read", "lts__t_sectors_op_write",
    "lts__t_sectors_srcunit_tex_op_read", "lts__t_sectors_srcunit_tex_op_write", "smsp__inst_executed",
)  # fmt: skip
"""Metrics that name asynchronous copies and products; asked for in any case."""
MOST_METRICS = 200


def launch_all() -> None:
    """Launch each pattern once, in order."""
    from warptile.codegen.nvrtc import compile_source
    from warptile.codegen.translation_unit import Source
    from warptile.gpu import driver
    from warptile.gpu.loader import load

    by_kernel = {pattern.kernel: pattern for pattern in PATTERNS}
    with ThreadPoolExecutor(8) as pool:
        compiled = pool.map(
            lambda each: compile_source(Source(text(each), each.kernel, may_spill=True), "sm_90a"), by_kernel.values()
        )
        kernels = {name: load(kernel) for name, kernel in zip(by_kernel, compiled, strict=True)}
    memory = driver.Allocation(GLOBAL_BYTES)
    for pattern in PATTERNS:
        kernel = kernels[pattern.kernel]
        kernel.launch(pattern.spec(kernel.kernel.entry), {"G": memory.address})
        driver.synchronize()


def metrics_of_the_chip(ncu: str) -> list[str]:
    """Names of all metrics of a GH100, without what is done to them."""
    for form in (["--csv"], []):
        command = [ncu, "--query-metrics", "--chip", "gh100", *form]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        names = re.findall(r'^"?((?:l1tex|lts|smsp|sm|dram)__[a-z0-9_]+)', done.stdout, re.MULTILINE | re.IGNORECASE)
        if names:
            return sorted(dict.fromkeys(names))
    return []


def main() -> None:
    """Run ncu as often as it takes to leave out metrics that it does not know, and write what it gave."""
    from warptile.bench.profiling.ncu import find_ncu, unknown_metrics

    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    ncu = find_ncu()
    names = metrics_of_the_chip(ncu)
    (folder / "metrics_gh100.txt").write_text("\n".join(names) + "\n")
    chosen = [name for name in names if CHOSEN.search(name) and not LEFT_OUT.search(name)]
    print(f"{len(names)} metrics, {len(chosen)} of them chosen", flush=True)
    asked = [f"{name}.sum" for name in dict.fromkeys([*FIRST, *chosen])][:MOST_METRICS]
    launch_all()  # compiles, and fails here rather than under ncu
    report = folder / "hopper.ncu-rep"
    for _ in range(8):
        command = [ncu, "--clock-control", "none", "--force-overwrite", "--kernel-name", "regex:hopper", "--export",
                   str(report), "--metrics", ",".join(asked),
                   sys.executable, __file__, "--launch"]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=dict(os.environ), check=False)
        output = done.stdout + done.stderr
        unknown = unknown_metrics(output, asked)
        written = sorted(folder.glob(f"{report.name}*"))
        if written or not unknown:
            break
        asked = [metric for metric in asked if metric not in unknown]
        print(f"{len(unknown)} metrics are not known: {unknown}", flush=True)
    (folder / "ncu_output.txt").write_text(output)
    if not written:
        sys.exit(f"ncu wrote no report:\n{output[-3000:]}")

    def page(*arguments: str) -> str:
        imported = [ncu, "--import", str(written[0]), "--csv", "--print-units", "base", *arguments]
        return subprocess.run(imported, capture_output=True, text=True, timeout=200, check=True).stdout

    (folder / "raw.csv").write_text(page("--page", "raw"))
    version = subprocess.run([ncu, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    digest(folder, asked, version.splitlines()[-1])


def digest(folder: Path, asked: list[str], tool: str) -> None:
    """Make the record and the tables of the page that ncu gave."""
    from warptile.bench.profiling.ncu import parse_raw

    rows = parse_raw((folder / "raw.csv").read_text())
    found = [
        {"name": pattern.name, "facts": pattern.facts, "metrics": {name: row[name] for name in asked if name in row}}
        for pattern, row in zip(PATTERNS, rows, strict=True)
    ]
    (folder / "hopper_counts.json").write_text(json.dumps({"tool": tool, "patterns": found}, indent=1))
    write_table(folder / "table.txt", asked, found)
    counts = [
        {"name": each["name"]}
        | {name: int(each["metrics"][m]) for name, m in METRICS.items() if each["metrics"].get(m)}
        for each in found
    ]
    lines = ",\n".join("    " + json.dumps(each) for each in counts)
    (folder / "counts.txt").write_text(
        f'  "counts": [\n{lines}\n  ]\n'
    )  # as tests/data/hopper_counts_h200.json has them


def write_table(path: Path, asked: list[str], found: list[dict]) -> None:
    """The metrics that differ between patterns: of each, every pattern's value that is not that of ``nothing``."""
    lines = []
    for metric in asked:
        values = [each["metrics"].get(metric) for each in found]
        if len(set(values)) < 2:
            continue
        lines.append(metric)
        lines += [
            f"    {value:>12.10g}  {each['name']}" for each, value in zip(found, values, strict=True)
            if value is not None and value != values[0]
        ]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--launch"]:
        launch_all()
    else:
        main()
