"""Functions on words of 64 bits, written in a small part of Python, as LLVM assembly.

Everything is a signed whole number of 64 bits, truth values among them; memory is read and written by address. There
are assignments, ``if``, ``while``, ``for`` over ``range`` and over constants, arithmetic, comparisons, and calls of
each other, of `min` and `max`, and of the functions below. ``//`` and ``%`` are those of numbers that are not negative.

Numba compiles Python too. It takes ten times as long, and what it makes cannot be kept in one file with the rest.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

_READS = {
    "read_u8": ("i8", "zext"), "read_u16": ("i16", "zext"), "read_u32": ("i32", "zext"),
    "read_i8": ("i8", "sext"), "read_i16": ("i16", "sext"), "read_i32": ("i32", "sext"), "read_i64": ("i64", ""),
}  # fmt: skip
_WRITES = {"write_8": "i8", "write_16": "i16", "write_32": "i32", "write_64": "i64"}
_COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "slt", ast.LtE: "sle", ast.Gt: "sgt", ast.GtE: "sge"}
_ARITHMETIC = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor",
               ast.LShift: "shl", ast.RShift: "ashr"}  # fmt: skip

WordFunction = Callable[..., Any]


def assembly(functions: Iterable[WordFunction], exported: Iterable[str]) -> str:
    """LLVM assembly of functions that call only each other; those that are ``exported`` keep their names."""
    functions, exported = list(functions), set(exported)
    names = {function.__name__ for function in functions}
    parts = [_Function(function, names, function.__name__ in exported).text() for function in functions]
    intrinsics = [f"declare i64 @llvm.{name}.i64(i64, i64)" for name in ("smin", "smax")]
    return "\n".join([*intrinsics, *parts])


class _Function:
    """Compiles one function."""

    def __init__(self, function: WordFunction, names: set[str], exported: bool) -> None:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        assert isinstance(tree, ast.FunctionDef), function
        self._tree = tree
        self._globals = function.__globals__
        self._names = names
        self._exported = exported
        self._lines: list[str] = []
        self._variables: dict[str, None] = {}
        self._constants: dict[str, int] = {}
        self._count = 0
        self._loops: list[tuple[str, str]] = []

    def text(self) -> str:
        """The function, its variables in memory: LLVM makes them values."""
        arguments = [each.arg for each in self._tree.args.args]
        for name in arguments:
            self._variables[name] = None
            self._lines.append(f"store i64 %argument.{name}, ptr %{name}")
        self._block(self._tree.body)
        self._lines.append("ret i64 0")
        taken = ", ".join(f"i64 %argument.{name}" for name in arguments)
        linkage = "" if self._exported else "internal "
        head = [f"define {linkage}i64 @{self._tree.name}({taken}) {{", "enter:"]
        head += [f"%{name} = alloca i64" for name in self._variables]
        return "\n".join([*head, *self._lines, "}"])

    # -- statements --------------------------------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=ast.Constant()):
                return  # a docstring
            case ast.Expr(value=value):
                self._value(value)
            case ast.Assign(targets=[*targets], value=value):
                self._assign(targets, value)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                self._set(name, self._arithmetic(op, self._get(name), value))
            case ast.Return(value=value):
                self._lines.append(f"ret i64 {'0' if value is None else self._value(value)}")
                self._label(self._new("after"))
            case ast.If(test=test, body=body, orelse=orelse):
                then, otherwise, end = self._new("then"), self._new("else"), self._new("end")
                self._condition(test, then, otherwise)
                for label, part in ((then, body), (otherwise, orelse)):
                    self._label(label)
                    self._block(part)
                    self._go(end)
                self._label(end)
            case ast.While(test=test, body=body):
                self._loop(test, body, None)
            case ast.For(target=ast.Name(id=name), iter=ast.Tuple(elts=elements), body=body):
                end = self._new("end")
                for element in elements:
                    following = self._new("following")
                    self._set(name, self._value(element))
                    self._loops.append((following, end))
                    self._block(body)
                    self._loops.pop()
                    self._go(following)
                    self._label(following)
                self._go(end)
                self._label(end)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=bounds), body=body):
                self._range(name, bounds, body)
            case ast.Break():
                self._go(self._loops[-1][1])
                self._label(self._new("after"))
            case ast.Continue():
                self._go(self._loops[-1][0])
                self._label(self._new("after"))
            case ast.Pass():
                return
            case _:
                raise self._unknown(node)

    def _assign(self, targets: list[ast.expr], value: ast.expr) -> None:
        for target in targets:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                values = [self._value(each) for each in value.elts]
                for each, found in zip(target.elts, values, strict=True):
                    assert isinstance(each, ast.Name)
                    self._set(each.id, found)
            elif isinstance(target, ast.Name):
                self._set(target.id, self._value(value))
            else:
                raise self._unknown(target)

    def _range(self, name: str, bounds: list[ast.expr], body: list[ast.stmt]) -> None:
        """``for name in range(...)`` with a step of 1, whose limit is evaluated once."""
        first = self._value(bounds[0]) if len(bounds) == 2 else "0"
        limit = self._new("limit")
        self._set(limit, self._value(bounds[-1]))
        self._set(name, first)
        test = ast.Compare(left=ast.Name(id=name), ops=[ast.Lt()], comparators=[ast.Name(id=limit)])
        self._loop(test, body, name)

    def _loop(self, test: ast.expr, body: list[ast.stmt], counter: str | None) -> None:
        head, inside, following, end = (self._new(word) for word in ("head", "inside", "following", "end"))
        self._go(head)
        self._label(head)
        self._condition(test, inside, end)
        self._label(inside)
        self._loops.append((following, end))
        self._block(body)
        self._loops.pop()
        self._go(following)
        self._label(following)
        if counter is not None:
            self._set(counter, self._put(f"add nsw i64 {self._get(counter)}, 1"))
        self._go(head)
        self._label(end)

    # -- values ------------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> str:
        constant = self._constant(node)
        if constant is not None:
            return str(constant)
        match node:
            case ast.Name(id=name):
                return self._get(name)
            case ast.BinOp(left=left, op=op, right=right):
                return self._arithmetic(op, self._value(left), right)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._put(f"sub i64 0, {self._value(operand)}")
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return self._put(f"xor i64 {self._value(operand)}, -1")
            case ast.Compare(ops=[op], left=left, comparators=[right]):
                return self._put(f"zext i1 {self._compared(left, op, right)} to i64")
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.IfExp():
                return self._chosen(node)
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self._call(name, arguments)
            case _:
                raise self._unknown(node)

    def _arithmetic(self, op: ast.operator, left: str, right: ast.expr) -> str:
        if isinstance(op, ast.FloorDiv | ast.Mod):
            constant = self._constant(right)
            if constant is not None and constant > 0 and constant & (constant - 1) == 0:
                if isinstance(op, ast.Mod):
                    return self._put(f"and i64 {left}, {constant - 1}")
                return self._put(f"ashr i64 {left}, {constant.bit_length() - 1}")
            return self._put(f"{'sdiv' if isinstance(op, ast.FloorDiv) else 'srem'} i64 {left}, {self._value(right)}")
        return self._put(f"{_ARITHMETIC[type(op)]} i64 {left}, {self._value(right)}")

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> str:
        return self._put(f"icmp {_COMPARE[type(op)]} i64 {self._value(left)}, {self._value(right)}")

    def _chosen(self, node: ast.expr) -> str:
        """A value that depends on a condition."""
        result = self._new("chosen")
        one, other, end = self._new("one"), self._new("other"), self._new("end")
        values: tuple[ast.expr, ast.expr] = (ast.Constant(value=1), ast.Constant(value=0))
        if isinstance(node, ast.IfExp):
            values, test = (node.body, node.orelse), node.test
        else:
            test = node
        self._condition(test, one, other)
        for label, value in zip((one, other), values, strict=True):
            self._label(label)
            self._set(result, self._value(value))
            self._go(end)
        self._label(end)
        return self._get(result)

    def _condition(self, node: ast.expr, then: str, otherwise: str) -> None:
        """Branch to one of two labels; what need not be evaluated is not."""
        match node:
            case ast.BoolOp(op=op, values=values):
                for value in values[:-1]:
                    following = self._new("also")
                    if isinstance(op, ast.And):
                        self._condition(value, following, otherwise)
                    else:
                        self._condition(value, then, following)
                    self._label(following)
                self._condition(values[-1], then, otherwise)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._condition(operand, otherwise, then)
            case ast.Compare(left=left, ops=[first, second], comparators=[middle, right]):
                following = self._new("also")
                between = self._new("between")
                low = self._value(left)
                self._set(between, self._value(middle))
                name = ast.Name(id=between)
                holds = self._put(f"icmp {_COMPARE[type(first)]} i64 {low}, {self._get(between)}")
                self._branch(holds, following, otherwise)
                self._label(following)
                self._branch(self._compared(name, second, right), then, otherwise)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                self._branch(self._compared(left, op, right), then, otherwise)
            case _:
                self._branch(self._put(f"icmp ne i64 {self._value(node)}, 0"), then, otherwise)

    def _call(self, name: str, arguments: list[ast.expr]) -> str:
        if name in _READS:
            kind, extend = _READS[name]
            found = self._put(f"load {kind}, ptr {self._place(arguments[0])}")
            return self._put(f"{extend} {kind} {found} to i64") if extend else found
        if name in _WRITES:
            kind = _WRITES[name]
            place, value = self._place(arguments[0]), self._value(arguments[1])
            if kind != "i64":
                value = self._put(f"trunc i64 {value} to {kind}")
            self._lines.append(f"store {kind} {value}, ptr {place}")
            return "0"
        values = [self._value(each) for each in arguments]
        listed = ", ".join(f"i64 {value}" for value in values)
        if name in ("min", "max"):
            return self._put(f"call i64 @llvm.s{name}.i64({listed})")
        if name == "add_f32":
            singles = [self._put(f"bitcast i32 {self._put(f'trunc i64 {value} to i32')} to float") for value in values]
            total = self._put(f"fadd float {singles[0]}, {singles[1]}")
            return self._put(f"zext i32 {self._put(f'bitcast float {total} to i32')} to i64")
        if name == "call":
            function = self._put(f"inttoptr i64 {values[0]} to ptr")
            return self._put(f"call i64 {function}({', '.join(f'i64 {value}' for value in values[1:])})")
        if name not in self._names:
            raise NameError(f"{self._tree.name} calls {name}, which is not compiled with it")
        return self._put(f"call i64 @{name}({listed})")

    def _place(self, address: ast.expr) -> str:
        """A pointer: of a sum, to an offset from its left part, which is what LLVM's vectorizer understands."""
        if isinstance(address, ast.BinOp) and isinstance(address.op, ast.Add) and self._constant(address) is None:
            start = self._place(address.left)
            return self._put(f"getelementptr i8, ptr {start}, i64 {self._value(address.right)}")
        return self._put(f"inttoptr i64 {self._value(address)} to ptr")

    # -- names -------------------------------------------------------------------------------------------------------

    def _constant(self, node: ast.expr) -> int | None:
        """The value of a constant: a number, a number of the module, or arithmetic of those."""
        match node:
            case ast.Constant(value=value) if isinstance(value, int):
                return _signed(int(value))
            case ast.Name(id=name) if name not in self._variables and isinstance(self._globals.get(name), int):
                return _signed(int(self._globals[name]))
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                return _signed(int(getattr(self._globals[module], name)))
            case ast.BinOp(left=left, op=op, right=right):
                one, other = self._constant(left), self._constant(right)
                if one is None or other is None:
                    return None
                found = eval(compile(ast.Expression(ast.fix_missing_locations(
                    ast.BinOp(ast.Constant(one), op, ast.Constant(other)))), "<constant>", "eval"))  # fmt: skip
                return _signed(found)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self._constant(operand)
                return None if inner is None else -inner
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                inner = self._constant(operand)
                return None if inner is None else ~inner
        return None

    def _get(self, name: str) -> str:
        if name not in self._variables:
            raise NameError(f"{self._tree.name} reads {name}, which has no value")
        return self._put(f"load i64, ptr %{name}")

    def _set(self, name: str, value: str) -> None:
        self._variables[name] = None
        self._lines.append(f"store i64 {value}, ptr %{name}")

    def _put(self, text: str) -> str:
        name = f"%{self._new('v')}"
        self._lines.append(f"{name} = {text}")
        return name

    def _new(self, word: str) -> str:
        self._count += 1
        return f"{word}.{self._count}"

    def _label(self, name: str) -> None:
        self._lines.append(f"{name}:")

    def _go(self, label: str) -> None:
        self._lines.append(f"br label %{label}")

    def _branch(self, condition: str, then: str, otherwise: str) -> None:
        self._lines.append(f"br i1 {condition}, label %{then}, label %{otherwise}")

    def _unknown(self, node: ast.AST) -> SyntaxError:
        return SyntaxError(f"{self._tree.name}: {ast.unparse(node)} is not in the part of Python that is compiled")


def _signed(value: int) -> int:
    """The number of 64 bits with the same lowest bits."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


# -- what compiled functions call: declared for readers and for type checks --------------------------------------------


def _only_compiled(*words: int) -> int:
    raise NotImplementedError("this function is called by compiled code only")


read_u8 = read_u16 = read_u32 = read_i8 = read_i16 = read_i32 = read_i64 = _only_compiled
"""The number of so many bits, unsigned or signed, at an address, which is a multiple of its size."""
write_8 = write_16 = write_32 = write_64 = _only_compiled
"""Write the low bits of the second word at the address that is the first."""
add_f32 = _only_compiled
"""The bits of the sum of two float32, which are given by theirs."""
call = _only_compiled
"""Call the function at the first address with the other words; what it returns."""
