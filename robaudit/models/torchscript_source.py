"""The source code inside TorchScript files: find what it refers to, before torch reads it.

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
from robaudit.models.operators import EXPORT_WITHOUT_OR_TRUST, METHODS, PYTHON, Operator

# What torch.jit.save writes: no comments, single quotes, tabs or line continuations. Torch's own
# lexer and Python's read this subset alike, so that what is checked is what torch compiles.
_PLAIN = re.compile(
    r"(?:[\w \n.,:()\[\]{}=<>+\-*/%&|^~!@]"
    r"|\"(?:[^\"\\\n]|\\[\\'\"abfnrtv]|\\[0-7]{3})*\"(?!\"))*",
    re.ASCII,
)

# What the source may consist of. Everything else, such as an import, a lambda or a comprehension,
# is refused without asking what torch would do with it.
_STATEMENTS = (
    ast.AnnAssign,
    ast.Assign,
    ast.Expr,
    ast.For,
    ast.If,
    ast.Pass,
    ast.Return,
    ast.While,
)
_EXPRESSIONS = (
    ast.Attribute,
    ast.BinOp,
    ast.BoolOp,
    ast.Call,
    ast.Compare,
    ast.Constant,
    ast.Dict,
    ast.IfExp,
    ast.List,
    ast.Name,
    ast.Slice,
    ast.Subscript,
    ast.Tuple,
    ast.UnaryOp,
    # Parts of the expressions above, which ast has as nodes of their own.
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
    ast.keyword,
    ast.operator,
    ast.unaryop,
)
_TYPES = (
    ast.Attribute,
    ast.Constant,
    ast.List,
    ast.Name,
    ast.Subscript,
    ast.Tuple,
    ast.expr_context,
)
_CLASSES = ("Module", "NamedTuple", "Enum")  # the bases that torch writes
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
    """The definitions and references in the source members of one TorchScript file.

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
            # Python would take other letters for names, and normalise them: torch would not.
            source = text.decode("ascii")
            if not _PLAIN.fullmatch(source):
                raise SyntaxError("characters that torch.jit.save does not write")
            tree = ast.parse(source)
            for statement in tree.body:
                self._top_level(statement, module)
        except _RefusedError as refused:
            raise ModelError(where, f"its code has {refused}", EXPORT_WITHOUT_OR_TRUST) from refused
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else type(error).__name__
            what = f"its code is not what torch.jit.save writes ({reason})"
            raise ModelError(where, what, EXPORT_WITHOUT_OR_TRUST) from error

    def outside(self) -> Iterator[Operator]:
        """The names that the file uses and does not define: all of them must be on the list."""
        yield from sorted(self.references)
        # The type of a value is not known here, so that a method is known by its name alone.
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
        code = ClassCode(bases[0] if bases else "")
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                self._function(statement)
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                self.defined.add(statement.target.id)
                self._type(statement.annotation)
                self._literal(statement.value)
                # With a value it is a constant, and no attribute. Fields of a named tuple may have
                # a default value.
                if statement.value is None or code.kind == "NamedTuple":
                    code.attributes[statement.target.id] = statement.annotation
            elif isinstance(statement, ast.Assign):
                self._class_value(statement, code)
            elif not isinstance(statement, ast.Pass):
                raise _refused("a statement in a class", statement)
        return code

    def _class_value(self, statement: ast.Assign, code: ClassCode) -> None:
        """Add an assignment of a class.

        torch writes three: ``__parameters__ = ["weight", ]``, the member of an enumeration
        ``NCHW = "NCHW"``, and ``__annotations__["0"] = TYPE`` for an attribute whose name is no
        identifier.
        """
        (target,) = statement.targets
        if isinstance(target, ast.Name):
            self.defined.add(target.id)
            self._literal(statement.value)
            if isinstance(statement.value, ast.Constant):
                code.members.append(statement.value.value)
            return
        name = target.slice if isinstance(target, ast.Subscript) else None
        if not isinstance(name, ast.Constant):
            raise _refused("a statement in a class", statement)
        self.defined.add(str(name.value))
        self._type(statement.value)
        code.attributes[str(name.value)] = statement.value

    def _function(self, node: ast.FunctionDef) -> None:
        if node.name == _RUN_WHILE_READ:
            raise _RefusedError(f"{node.name!r}, which torch would run while it reads the file")
        arguments = node.args
        if node.decorator_list or arguments.vararg or arguments.kwarg:
            raise _refused(f"the function {node.name!r} of an unusual kind", node)
        self.defined.add(node.name)
        # torch computes default values while it reads the file.
        for default in (*arguments.defaults, *arguments.kw_defaults):
            self._literal(default)
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        for parameter in parameters:
            self._type(parameter.annotation)
        self._type(node.returns)
        # A name that is assigned anywhere in the function counts as local. If torch takes it for a
        # global name before that, the check of the graph finds it.
        local = {parameter.arg for parameter in parameters}
        for statement in node.body:
            for part in ast.walk(statement):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    local.add(part.id)
        for statement in node.body:
            self._statement(statement, local)

    def _statement(self, node: ast.stmt, local: set[str]) -> None:
        """Check a statement in a function.

        Args:
            node: the statement.
            local: the names of the function's arguments and variables.
        """
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
        """Check an expression in a function, and note the names to which it refers."""
        if not isinstance(node, _EXPRESSIONS):
            raise _refused("an expression", node)
        if isinstance(node, ast.Name) and node.id not in local:
            self.references.add((PYTHON, node.id))
        if isinstance(node, ast.Attribute):
            path = _dotted(node)
            root = path[0] if path else None
            # torch.relu is an operator; of `x.relu` with a local x, relu is a method of any type.
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
        """Check a call, whose first argument may be a type."""
        function = node.func
        if isinstance(function, ast.Name) and function.id == "getattr" and "getattr" not in local:
            self._getattr(node)
        takes_type = isinstance(function, ast.Name) and function.id in _WITH_TYPE
        if isinstance(function, ast.Name) and takes_type and function.id not in local:
            self.references.add((PYTHON, function.id))
            if not node.args:
                raise _refused("a call without its type", node)
            self._type(node.args[0])
            values = node.args[1:]
        elif isinstance(function, (ast.Name, ast.Attribute)):
            self._expression(function, local)
            values = node.args
        else:
            # A call of a call, such as getattr(x, "f")(), would hide what is called.
            raise _refused("a call of what has no name", node)
        for part in (*values, *node.keywords):
            self._expression(part, local)

    def _getattr(self, node: ast.Call) -> None:
        """Note an attribute whose name is no identifier: ``getattr(self, "0")``."""
        # A computed name could be any method, past the list.
        name = node.args[1] if len(node.args) > 1 else None
        if not isinstance(name, ast.Constant):
            raise _refused("an attribute without a name", node)
        self._members.add(str(name.value))

    def _global(self, path: list[str]) -> None:
        """Note a global name: ``torch.relu``, ``ops.prim.dtype``, ``CONSTANTS.c0``, or a name of
        the file."""
        root, *names = path
        # Classes of compiled libraries have names below the root of the file's own.
        if root == _CODE:
            if ".".join(path).startswith(_OBJECTS):
                self.references.add(("class", ".".join(path)))
        elif root == "torch":
            self.references.add(("aten", ".".join(names)))
        elif root == "ops":
            self.references.add((names[0], ".".join(names[1:])))

    def _type(self, node: ast.expr | None) -> None:
        """Check a type, which may name a class of a compiled library."""
        if node is None:
            return
        for part in ast.walk(node):
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
        # torch writes these numbers as names.
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
    """The source has something that needs trust."""


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
