"""The source code inside TorchScript files: what it refers to, found before torch reads it.

torch compiles the Python-like source while it reads a file, and *runs* parts of it then: default
values of arguments and fields, constants of classes, and ``__setstate__``. So the source is parsed
here first. It may hold the statements that ``torch.jit.save`` writes, and nothing else; values that
torch would evaluate must be literals; and everything it refers to is returned, to be compared with
the list of allowed operators.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeGuard

from robaudit.errors import ModelError
from robaudit.models.operators import METHODS, PYTHON, WITHOUT, Operator

# What torch.jit.save writes: no comments, single quotes, tabs or line continuations. Torch's own
# lexer and Python's read this subset alike, so that what is checked is what torch compiles.
_PLAIN = re.compile(
    r"(?:[\w \n.,:()\[\]{}=<>+\-*/%&|^~!@]"
    r"|\"(?:[^\"\\\n]|\\[\\'\"abfnrtv]|\\[0-7]{3})*\"(?!\"))*",
    re.ASCII,
)

_STATEMENTS = (
    *(ast.Assign, ast.AnnAssign, ast.Expr, ast.Pass, ast.Return),
    *(ast.If, ast.For, ast.While),
)
_EXPRESSIONS = (
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Call, ast.keyword, ast.Constant),
    *(ast.List, ast.Tuple, ast.Dict, ast.IfExp, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare),
    *(ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)
_TYPES = (
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.Constant, ast.List),
    ast.expr_context,
)
_CLASSES = ("Module", "NamedTuple", "Enum")
_CODE = "__torch__"
"""The root of names that the file itself defines."""
_OBJECTS = "__torch__.torch.classes"
"""Classes of compiled libraries."""
_RUN_WHILE_READ = "__setstate__"


@dataclass
class ClassCode:
    """A class of a TorchScript file.

    Attributes:
        kind: Module, NamedTuple or Enum; "" for a plain class.
        attributes: the types of its attributes or fields, in order.
        members: the values of the members of an Enum.
    """

    kind: str
    attributes: dict[str, ast.expr] = field(default_factory=dict)
    members: list[object] = field(default_factory=list)


@dataclass
class SourceCode:
    """What the source members of one TorchScript file define and refer to.

    Attributes:
        defined: names of functions, methods and attributes, all members together.
        references: operators, and other names that the file must define or the list must have.
        classes: by qualified name, ``__torch__.net.Net``.
    """

    defined: set[str] = field(default_factory=set)
    references: set[Operator] = field(default_factory=set)
    classes: dict[str, ClassCode] = field(default_factory=dict)
    _members: set[str] = field(default_factory=set)

    def read(self, text: bytes, module: str, where: str) -> None:
        """Add a member.

        Args:
            text: the source.
            module: its qualified name, ``__torch__.net``.
            where: the file, for messages.

        Raises:
            ModelError: it has anything that torch does not write, or that torch would run while
                it reads the file.
        """
        try:
            source = text.decode("ascii")
            if not _PLAIN.fullmatch(source):
                raise SyntaxError("characters that torch.jit.save does not write")
            tree = ast.parse(source)
            for statement in tree.body:
                self._top_level(statement, module)
        except _RefusedError as refused:
            raise ModelError(where, f"its code has {refused}", WITHOUT) from refused
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else type(error).__name__
            what = f"its code is not what torch.jit.save writes ({reason})"
            raise ModelError(where, what, WITHOUT) from error

    def outside(self) -> Iterator[Operator]:
        """What the file refers to and does not define itself: all of it must be on the list."""
        yield from sorted(self.references)
        yield from sorted((METHODS, name) for name in self._members - self.defined)

    def _top_level(self, statement: ast.stmt, module: str) -> None:
        if isinstance(statement, ast.FunctionDef):
            self._function(statement)
        elif isinstance(statement, ast.ClassDef):
            self.classes[f"{module}.{statement.name}"] = self._class(statement)
        elif not _is_version(statement):
            raise _refused("a statement outside of functions", statement)

    def _class(self, node: ast.ClassDef) -> ClassCode:
        bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
        unusual = len(bases) != len(node.bases) or not set(bases) <= set(_CLASSES)
        if unusual or node.decorator_list or node.keywords:
            raise _refused(f"the class {node.name!r} of an unusual kind", node)
        made = ClassCode(bases[0] if bases else "")
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                self._function(statement)
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                self.defined.add(statement.target.id)
                self._type(statement.annotation)
                self._literal(statement.value)
                if (
                    statement.value is None or made.kind == "NamedTuple"
                ):  # else a constant, which is no attribute
                    made.attributes[statement.target.id] = statement.annotation
            elif isinstance(statement, ast.Assign):
                self._class_value(statement, made)
            elif not isinstance(statement, ast.Pass):
                raise _refused("a statement in a class", statement)
        return made

    def _class_value(self, statement: ast.Assign, made: ClassCode) -> None:
        """``__parameters__ = ["weight", ]``, ``NCHW = "NCHW"`` or ``__annotations__["0"] =
        TYPE``."""
        (target,) = statement.targets
        if isinstance(target, ast.Name):
            self.defined.add(target.id)
            self._literal(statement.value)
            if isinstance(statement.value, ast.Constant):
                made.members.append(statement.value.value)
            return
        name = target.slice if isinstance(target, ast.Subscript) else None
        if not isinstance(name, ast.Constant):
            raise _refused("a statement in a class", statement)
        self.defined.add(str(name.value))
        self._type(statement.value)
        made.attributes[str(name.value)] = statement.value

    def _function(self, node: ast.FunctionDef) -> None:
        if node.name == _RUN_WHILE_READ:
            raise _RefusedError(f"{node.name!r}, which torch would run while it reads the file")
        arguments = node.args
        if node.decorator_list or arguments.vararg or arguments.kwarg:
            raise _refused(f"the function {node.name!r} of an unusual kind", node)
        self.defined.add(node.name)
        for default in (*arguments.defaults, *arguments.kw_defaults):
            self._literal(default)
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        for parameter in parameters:
            self._type(parameter.annotation)
        self._type(node.returns)
        local = {parameter.arg for parameter in parameters}
        for statement in node.body:
            local |= {
                name.id
                for name in ast.walk(statement)
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            }
        for statement in node.body:
            self._statement(statement, local)

    def _statement(self, node: ast.stmt, local: set[str]) -> None:
        if not isinstance(node, _STATEMENTS):
            raise _refused("a statement", node)
        if isinstance(node, ast.AnnAssign):
            self._type(node.annotation)
        for name, child in ast.iter_fields(node):
            for part in child if isinstance(child, list) else [child]:
                if isinstance(part, ast.stmt):
                    self._statement(part, local)
                elif isinstance(part, ast.AST) and name != "annotation":
                    self._expression(part, local)

    def _expression(self, node: ast.AST, local: set[str]) -> None:
        if not isinstance(node, _EXPRESSIONS):
            raise _refused("an expression", node)
        if isinstance(node, ast.Name) and node.id not in local:
            self.references.add((PYTHON, node.id))
        if isinstance(node, ast.Attribute):
            path = _dotted(node)
            root = path[0] if path else None
            if path and root not in local and root in _ROOTS:
                self._global(path)
                return
            self._members.add(node.attr)
        if isinstance(node, ast.Call):
            self._call(node, local)
            return
        for part in ast.iter_child_nodes(node):
            self._expression(part, local)

    def _call(self, node: ast.Call, local: set[str]) -> None:
        called = node.func
        if isinstance(called, ast.Name) and called.id == "getattr" and called.id not in local:
            self._getattr(node)
        if isinstance(called, ast.Name) and called.id in _WITH_TYPE and called.id not in local:
            self.references.add((PYTHON, called.id))
            if not node.args:
                raise _refused("a call without its type", node)
            self._type(node.args[0])
            rest = node.args[1:]
        elif isinstance(called, (ast.Name, ast.Attribute)):
            self._expression(called, local)
            rest = node.args
        else:
            raise _refused("a call of what has no name", node)
        for part in (*rest, *node.keywords):
            self._expression(part, local)

    def _getattr(self, node: ast.Call) -> None:
        """``getattr(self, "0")``: an attribute whose name is no identifier."""
        name = node.args[1] if len(node.args) > 1 else None
        if not isinstance(name, ast.Constant):
            raise _refused("an attribute without a name", node)
        self._members.add(str(name.value))

    def _global(self, path: list[str]) -> None:
        """A name such as ``torch.relu``, ``ops.prim.dtype``, ``CONSTANTS.c0`` or one of the
        file."""
        root, *names = path
        if root == _CODE:
            if ".".join(path).startswith(_OBJECTS):
                self.references.add(("class", ".".join(path)))
        elif root == "torch":
            self.references.add(("aten", ".".join(names)))
        elif root == "ops":
            self.references.add((names[0], ".".join(names[1:])))

    def _type(self, node: ast.expr | None) -> None:
        for part in () if node is None else ast.walk(node):
            if not isinstance(part, _TYPES):
                raise _refused("a type", part)
            if isinstance(part, ast.Attribute):
                name = ".".join(_dotted(part) or [])
                if name.startswith(_OBJECTS):
                    self.references.add(("class", name))

    def _literal(self, node: ast.expr | None) -> None:
        """Refuse a default value or constant that torch would have to compute."""
        if node is None or isinstance(node, ast.Constant):
            return
        if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
            return
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            self._literal(node.operand)
        elif isinstance(node, (ast.List, ast.Tuple)):
            for element in node.elts:
                self._literal(element)
        elif _is_empty_list(node):
            self._type(node.args[0])
        else:
            written = ast.unparse(node)[:60]
            raise _RefusedError(
                f"the default value {written!r}, which torch would compute while it reads the file"
            )


_ROOTS = ("torch", "ops", "CONSTANTS", _CODE)
_WITH_TYPE = ("annotate", "unchecked_cast", "uninitialized")
"""Functions of TorchScript whose first argument is a type."""


class _RefusedError(Exception):
    """The source has something that is not taken without trust."""


def _refused(what: str, node: ast.AST) -> _RefusedError:
    kind = type(node).__name__
    return _RefusedError(f"{what} that ordinary networks do not have ({kind})")


def _is_version(node: ast.stmt) -> bool:
    """Whether this is ``op_version_set = 1``, the first line that torch 1.0 to 1.5 wrote."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
        return False
    return [ast.unparse(target) for target in node.targets] == ["op_version_set"]


def _dotted(node: ast.expr) -> list[str] | None:
    """The parts of a dotted name; None for another expression."""
    parts = list[str]()
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return [node.id, *reversed(parts)]


def _is_empty_list(node: ast.expr) -> TypeGuard[ast.Call]:
    """Whether this is ``annotate(List[int], [])``, as an empty default is written."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    if node.func.id != "annotate" or node.keywords or len(node.args) != 2:
        return False
    value = node.args[1]
    return isinstance(value, ast.List) and not value.elts
