"""The package's sources, each parsed once for all tests that look at them."""

import ast
from functools import cache
from pathlib import Path

import warptile

PACKAGE = Path(warptile.__file__).parent


def nodes_in(source: str) -> tuple[ast.AST, ...]:
    """Every node of a source's syntax tree."""
    return tuple(ast.walk(ast.parse(source)))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a module's syntax tree."""
    return nodes_in(path.read_text())


@cache
def imports_of(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Its imports, wherever in the source."""
    return tuple(node for node in nodes_of(path) if isinstance(node, (ast.Import, ast.ImportFrom)))
