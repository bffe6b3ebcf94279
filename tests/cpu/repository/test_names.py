"""One name, one meaning: modules and classes of the package, and the limits of one GPU where any GPU is meant."""

import ast
from collections import defaultdict

import warptile
from package_sources import PACKAGE, nodes_in, nodes_of

FILES = sorted(PACKAGE.rglob("*.py"))
NAMES = [str(path.relative_to(PACKAGE)) for path in FILES]

SAME_MODULES = {
    "mma": "the instruction: its shapes, its wrappers, its semantics, the rungs built on it",
    "wgmma": "the same of wgmma",
    "wmma": "the same of WMMA",
    "bulk_copy": "the instruction: its forms and its semantics",
    "matrix_move": "the instructions: their forms and their semantics",
    "cp_async": "the instruction and the copies that it leaves pending",
    "tensor_map": "the data type, what the driver makes of it, its instructions",
    "cache": "what the command is about",
    "doctor": "what the command is about",
    "ladder": "what the command is about",
    "profile": "what the command is about",
    "run": "what is run from the command line: a program, a campaign of measurements",
}
"""Names that several modules have, each a room's view of one thing."""

SAME_CLASSES: dict[str, str] = {}
"""Names that public classes of several modules have, with the reason: none at present."""

RUNG_CALLS = {"illegal": 3, "resolve": 3, "default_config": 2, "candidates": 2, "adapt": 4, "estimate_us": 3}
"""Methods of a rung that take a device last, and how many arguments they have with it."""


def classes():
    """Name of a public class -> the modules that define it."""
    found = defaultdict(list)
    for name in NAMES:
        for node in nodes_of(PACKAGE / name):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(name)
    return found


def without_a_device(nodes):
    """Lines of calls of a rung's methods that leave the device to its default."""
    for node in nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        needed = RUNG_CALLS.get(node.func.attr)
        given = len(node.args) + len(node.keywords)
        starred = any(isinstance(each, ast.Starred) for each in node.args)
        if needed is not None and given and not starred and given < needed:
            yield node.lineno


def fixed_sms(nodes):
    """Lines with the literal 132."""
    return [node.lineno for node in nodes if isinstance(node, ast.Constant) and node.value == 132]


def test_modules_of_one_name_are_about_one_thing():
    found = defaultdict(list)
    for path in FILES:
        if path.stem != "__init__":
            found[path.stem].append(str(path.relative_to(PACKAGE)))
    several = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert {name: several[name] for name in several.keys() - SAME_MODULES.keys()} == {}
    assert SAME_MODULES.keys() - several.keys() == set(), "no exception without need"


def test_no_module_is_called_like_a_public_function_but_those_of_plans_and_tensor_maps():
    """`warptile.planning.plan` holds `Plan`, `warptile.launch.tensor_map` `TensorMap`; others would be mistaken for
    what they are imported beside."""
    assert {path.stem for path in FILES} & set(warptile.__all__) == {"plan", "tensor_map"}


def test_a_class_name_has_one_meaning():
    several = {name: places for name, places in classes().items() if len(places) > 1}
    assert {name: several[name] for name in several.keys() - SAME_CLASSES.keys()} == {}
    assert SAME_CLASSES.keys() - several.keys() == set(), "no exception without need"


def test_rungs_are_asked_for_a_device():
    asking = [name for name in NAMES if not name.startswith(("emulator/", "ptx/"))]
    found = {name: list(without_a_device(nodes_of(PACKAGE / name))) for name in asking}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_call_without_a_device_is_seen():
    source = (
        "rung.illegal(problem, config)\nRUNGS[n].default_config(p)\nPath(p).resolve()\nrung.resolve(p, c, device)\n"
    )
    assert list(without_a_device(nodes_in(f"{source}rung.illegal(p, c, device=d)\nr.candidates(*a)\n"))) == [
        1,
        2,
    ]


def test_the_number_of_sms_of_one_gpu_is_stated_where_gpus_are():
    found = {name: fixed_sms(nodes_of(PACKAGE / name)) for name in NAMES if name not in ("device.py", "arch.py")}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_fixed_number_of_sms_is_seen():
    assert fixed_sms(nodes_in('"132 SMs"\nx = {"SMS": 132}\n')) == [2]
