"""The tables that ship are made from records, and every configuration in them is legal, compiles without spills or
serialised wgmma, and is right on the emulator: all kernels that they need, each once."""

from functools import cache

import msgspec
import pytest
from click.testing import CliRunner

from covering import ALL, few, of_each
from warptile.bench.campaign.ship_table import main, record_of, searches_of, ship, tables_of
from warptile.bench.campaign.suite_search import environment_file
from warptile.bench.protocol.environment import describe
from warptile.bench.protocol.records import SearchesRecord, SuitesRecord, committed, write
from warptile.bench.protocol.row_result import LIBRARY, OURS, ParticipantRounds, RowResult
from warptile.bench.protocol.workloads import BF16, to_problem
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import translation_unit
from warptile.device import REFERENCE
from warptile.planning import shipped_table
from warptile.planning.plan import config_text
from warptile.planning.tuned_table import Entry, ProblemClass, Search, Table
from warptile.rungs import RUNGS
from warptile.rungs.wgmma import final, fused_repack, residue_classes, tiles
from wgmma_product import product

RUNG = RUNGS["wgmma-final"]
KEY = BF16.key(4096, 4096, 4096, "col")
CLASS = ProblemClass.of(to_problem(KEY))
SHARES = 4 if ALL else 2
"""In so many parts the kernels that ship are tested."""

MODES = ("BM", "CONSUMERS", "PINGPONG", "CM", "CN", "ALONG_N", "OVERLAP", "STREAM", "SWAP")
"""Tunables by whose values an ordinary run chooses."""


def entries_of_a_search(problem=CLASS, source="s"):
    """Two configurations in rounds, of which the second is the faster, one in the brief look alone, and a failure."""
    search = Search("NVIDIA H200", "NVRTC 13.0.88", RUNG.name, source, problem)
    configs = [{**RUNG.default_config(to_problem(KEY)), "GROUP": group} for group in (4, 8, 16, 32)]
    brief = zip(configs, (0.2, 0.21, 0.22), strict=False)
    made = [Entry(search=search, config=config, stage=0, time_ms=time_ms) for config, time_ms in brief]
    made.append(Entry(search=search, config=configs[3], stage=0, time_ms=None, failed="CompileError: it spills"))
    for config, rounds in ((configs[0], (0.23, 0.21, 0.22)), (configs[1], (0.2, 0.2, 0.21))):
        made.append(Entry(search=search, config=config, stage=1, time_ms=rounds[1], rounds_ms=rounds))
    return [*made, msgspec.structs.replace(made[-1], winner=True)], [config_text(config) for config in configs]


def test_a_search_becomes_a_list_the_best_first_with_all_its_times():
    entries, texts = entries_of_a_search()
    (found,) = searches_of(entries)
    assert (found.problem, found.source, [each.config for each in found.tried]) == (
        CLASS, "s", [texts[1], texts[0], texts[2], texts[3]],
    )  # fmt: skip
    assert (found.tried[0].brief_ms, found.tried[0].rounds_ms) == (0.21, (0.2, 0.2, 0.21))
    assert found.tried[3].failed == "CompileError: it spills"


def row_result(config):
    turns = [ParticipantRounds(who=who, rounds_ms=rounds, launches=9, method="events") for who, rounds in (
        (OURS, (0.2, 0.2)), (LIBRARY, (0.21, 0.21)))]  # fmt: skip
    values = dict(word.split("=") for word in config.split())
    ours = {key: int(value) for key, value in values.items()}
    return RowResult(suite="squares", problem=KEY, rung=RUNG.name, config=ours, turns=tuple(turns))


def test_a_run_becomes_a_record_and_a_table_with_its_worth_beside_the_library(tmp_path, monkeypatch):
    entries, texts = entries_of_a_search()
    table = Table("nvidia-h200", tmp_path)
    for entry in entries:
        table.append(entry)
    environment = msgspec.structs.replace(describe(None), gpu="NVIDIA H200")
    environment_file(tmp_path).write_bytes(msgspec.json.encode(environment))
    record = record_of(tmp_path, commit="abc", command="warptile tune --suite all")
    assert record.kind == "searches"
    suites = SuitesRecord(
        date=record.date,
        git_hash="abd",
        command="warptile bench",
        environment=environment,
        contests=(row_result(texts[1]),),
    )
    (made,) = tables_of([record, suites])
    (entry,) = made.entries
    assert (made.gpu, made.rung, made.origins[0].git_hash, made.origins[0].source) == (
        "NVIDIA H200",
        RUNG.name,
        "abc",
        "s",
    )
    assert config_text(dict(zip(made.keys, entry.config, strict=True))) == texts[1]
    assert (entry.tflops, entry.of_cublaslt) == (round(2 * 4096**3 / 0.2e9, 1), 1.05)
    monkeypatch.setattr(shipped_table, "FOLDER", tmp_path / "data")
    shipped_table.table.cache_clear()
    assert [path.name for path in ship([record], tmp_path / "data")] == ["tuned-wgmma-final.json"]
    assert shipped_table.table(RUNG.name).entries[0].of_cublaslt is None
    shipped_table.table.cache_clear()


@pytest.mark.parametrize("given", ["--records", "--tables"])
def test_the_command_writes_only_where_it_is_told(tmp_path, given):
    needed = {"--records": "--tables", "--tables": "--records"}[given]
    outcome = CliRunner().invoke(main, [given, str(tmp_path)])
    assert outcome.exit_code == 2
    assert f"{needed} FOLDER is needed" in outcome.output
    assert list(tmp_path.iterdir()) == []


def test_the_command_makes_the_tables_of_a_folder_of_records(tmp_path):
    entries, _ = entries_of_a_search()
    record = SearchesRecord(
        date="2026-11-22T00:00:00Z", git_hash="1", command="", environment=describe(None), searches=searches_of(entries)
    )
    write(record, tmp_path / "records")
    arguments = ["--records", str(tmp_path / "records"), "--tables", str(tmp_path / "tables")]
    outcome = CliRunner().invoke(main, arguments)
    assert (outcome.exit_code, outcome.output) == (0, "tuned-wgmma-final.json\n")
    assert [path.name for path in (tmp_path / "tables").iterdir()] == ["tuned-wgmma-final.json"]


def test_what_has_become_illegal_gives_way_to_the_next_best():
    (search,) = searches_of(entries_of_a_search()[0])
    wrong, right = (search.tried[0].config.replace("BM=128", "BM=48"), search.tried[1].config)
    tried = (msgspec.structs.replace(search.tried[0], config=wrong), *search.tried[1:])
    older = tuple(
        msgspec.structs.replace(each, config=" ".join(word for word in each.config.split() if "ALONG" not in word))
        for each in tried
    )
    for attempts in (tried, older):
        record = SearchesRecord(
            date="2026-11-21T00:00:00Z", git_hash="1", command="", environment=describe(None),
            searches=(msgspec.structs.replace(search, tried=attempts),),
        )  # fmt: skip
        (made,) = tables_of([record])
        assert config_text(dict(zip(made.keys, made.entries[0].config, strict=True))) == right


def test_of_one_problem_the_newest_search_counts():
    older, newer = (
        SearchesRecord(
            date=f"2026-11-2{day}T00:00:00Z", git_hash=f"{day}", command="", environment=describe(None),
            searches=searches_of(entries_of_a_search(problem, f"source {day}")[0]),
        )
        for day, problem in ((1, CLASS), (2, CLASS))
    )  # fmt: skip
    (made,) = tables_of([older, newer])
    assert [origin.git_hash for origin in made.origins] == ["2"]


# --- what ships ------------------------------------------------------------------------------------------------------


@cache
def table_that_ships():
    return shipped_table.table(RUNG.name)


def everything():
    """(problem class, configuration) of all entries."""
    table = table_that_ships()
    return [
        (ProblemClass(*entry.problem), dict(zip(table.keys, entry.config, strict=True)))
        for entry in (table.entries if table else ())
    ]


@cache
def kernels():
    """Each kernel that ships with the first entry that has it."""
    found = {}
    for problem, config in everything():
        found.setdefault(translation_unit(RUNG.resolve(problem.problem(), config)), (problem, config))
    return list(found.items())


def kernels_to_test():
    """Kernels that ship: all of them, or one for each share, of a few that have every mode among them and unaligned
    operands (tests/cpu/rungs has all modes)."""

    def parts(kernel):
        _, (problem, config) = kernel
        values = {(mode, config[mode]) for mode in MODES} | {("SPLITS", config["SPLITS"] > 1)}
        return values | {("aligned", problem.a_alignment >= 16, problem.b_alignment >= 16)}

    return few(of_each(kernels(), parts), SHARES)


def test_the_tables_are_those_of_the_records():
    made = {shipped_table.path_of(table.rung).name: shipped_table.encode(table) for table in tables_of(committed())}
    kept = {path.name: path.read_bytes() for path in shipped_table.FOLDER.glob("tuned-*.json")}
    assert kept == made, "make them again: see the docstring of warptile.bench.campaign.ship_table"


def test_every_configuration_is_legal_for_its_problem():
    refused = {problem: RUNG.illegal(problem.problem(), config) for problem, config in everything()}
    assert {problem: reason for problem, reason in refused.items() if reason} == {}
    for problem in refused:
        assert ProblemClass.of(problem.problem()) == problem


DEPTHS = (5, 9, 17, 33)
"""Steps of a small product: enough for stores that overlap them."""

WIDE = 1024
"""Columns that the rules of a kernel call many."""


def small(problem, config):
    """Extents of one cluster of tiles (in classes: in each class of rows) and a part of another along N, and along M
    where the problem has such a part too, with its remainders by 16; and the configuration on fewer blocks."""
    rows, columns = config["BM"] * config["CM"], config["BN"] * config["CN"]
    view = tiles.view(problem.problem(), config)
    seen = view.problem
    rows *= residue_classes.RESIDUE_CLASSES if residue_classes.by_residue_class(seen, config) else 1
    m, n = (columns, rows) if config["SWAP"] else (rows, columns)
    made = dict(config)
    if config["SPLITS"] == 1:  # else all parts have to run at one time
        taking = 1 if config["OVERLAP"] else 4  # with a second tile, inside whose steps the first is stored
        made["SMS"] = min(config["SMS"], taking * config["CM"] * config["CN"])
    another = 8 * (2 * config["SPLITS"] * config["CM"] * config["CN"] <= REFERENCE.sms)
    for steps in DEPTHS[2:] if view.fused_repacks else DEPTHS:  # lines that are copied in slices have a whole one
        extents = (m + another * (problem.m % m > 0), n + another, max(steps, config["SPLITS"]) * config["BK"])
        small_m, small_n, k = (
            min(extent, -(-(each - extent % 16) // 16) * 16 + extent % 16)
            for each, extent in zip(extents, (problem.m, problem.n, problem.k), strict=True)
        )
        less = msgspec.structs.replace(problem, m=small_m, n=small_n, k=k)
        if RUNG.illegal(less.problem(), made) is None:
            break
    return less, made


def as_if_large(monkeypatch, problem, config):
    """Make the kernel's rules about many columns, and about what fills L2, say of small extents what they say of
    these."""
    view = tiles.view(problem.problem(), config)
    seen = view.problem
    loaded_once = final._loaded_once(seen, config, REFERENCE)
    monkeypatch.setattr(final, "_loaded_once", lambda *_: loaded_once)
    if seen.n >= WIDE:
        monkeypatch.setattr(residue_classes, "LEAST_COLUMNS", 1)
        monkeypatch.setattr(tiles, "FEW_COLUMNS", 0)
    if view.fused_repacks:
        monkeypatch.setattr(fused_repack, "MOST_LINES", seen.m + seen.n)
        monkeypatch.setattr(fused_repack, "LEAST_WAVES", 1)


@pytest.mark.parametrize("share", range(SHARES))
def test_kernels_that_ship_neither_spill_nor_serialise_and_are_right_on_the_emulator(monkeypatch, share):
    for source, (problem, config) in kernels_to_test()[share::SHARES]:
        made = compile_source(source, REFERENCE.arch)  # a spill or a serialised wgmma is a CompileError
        assert made.resources.spill_bytes == 0
        if problem.batch > 1:  # tests/cpu/arrays/test_batch.py has small ones
            continue
        with monkeypatch.context() as patched:
            as_if_large(patched, problem, config)
            less, changed = small(problem, config)
            assert translation_unit(RUNG.resolve(less.problem(), changed)) == source, (problem, config)
            found = product(
                RUNG.name, less.m, less.n, less.k, dtype=problem.dtype, accumulator=problem.accumulator,
                out=problem.out, a_major=problem.a_major, b_major=problem.b_major, config=changed,
                offset=int(problem.a_alignment < 16 and problem.k % 8 == 0), kernel=(made.entry, made.ptx),
            )  # fmt: skip
        assert found.error_ratio <= 1, (problem, config)
        assert found.guards_kept
