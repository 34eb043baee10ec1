"""Does the graph of a .pt2 file name only torch operators, plain names and arithmetic?

Reading a graph can run code in four ways, each closed here: size expressions go through sympy's ``eval``, operator names are
looked up from ``torch`` with getattr (``torch.os.system``), names of values and arguments are written into Python source,
and the input's structure may import modules.
"""

from __future__ import annotations

import ast
import json
import re

from robaudit.errors import ModelError

_OPERATORS = re.compile(
    r"torch\.ops\.(?:aten|prims)\.(?:[A-Za-z_](?!_)\w*|_|__(?:i?and|i?or|i?xor|i?lshift|i?rshift)__)\.[A-Za-z]\w*"
    r"|torch\.ops\.higher_order\.(?:cond|wrap_with_set_grad_enabled|wrap_with_autocast)"
    r"|_operator\.(?:getitem|add|sub|mul|truediv|floordiv|mod|pow|neg|pos|abs|eq|ne|lt|le|gt|ge|and_|or_|xor|not_|lshift|rshift)"
    r"|math\.[a-z]\w*|torch\._?sym_\w+"
)
_TOUCHES_FILES = re.compile(r"torch\.ops\.\w+\.(?:from_file|save)\b.*")
_NAME = re.compile(r"[A-Za-z_]\w*")
_PLAIN_TEXT = re.compile(r"[\w.:+\-*/<>=, ]*")
_POWERS = ("Pow", "PowByNatural", "FloatPow", "LShift")
_LARGEST_EXPONENT, _LONGEST_EXPRESSION = 64, 4000
_CONTEXT = re.compile(r'[\w\[\]", .\-]*')
_SYMBOL = re.compile(r"[a-z]+\d+")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_FUNCTIONS = re.compile(
    r"Symbol|Integer|Float|Rational|Add|Mul|Pow|Max|Min|Abs|Eq|Ne|Lt|Le|Gt|Ge|Not|And|Or|true|false|oo|int_oo|floor|ceiling|Identity"
    r"|Equality|Unequality|(?:Strict)?(?:Less|Greater)Than|Where|Mod|PythonMod|FloorDiv|CleanDiv|CeilDiv|ModularIndexing|LShift|RShift"
    r"|PowByNatural|FloatPow|FloatTrueDiv|IntTrueDiv|(?:Ceil|Floor|Trunc|Round)ToInt|TruncToFloat|RoundDecimal|ToFloat"
    r"|IsNonOverlappingAndDenseIndicator"
)
_ARITHMETIC = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.keyword, ast.Name, ast.Constant, ast.Load),
    *(ast.operator, ast.unaryop, ast.cmpop),
)
_STRUCTURES = (
    "builtins.tuple",
    "builtins.list",
    "builtins.dict",
    "collections.OrderedDict",
    "torch.fx.immutable_collections.immutable_list",
    "torch.fx.immutable_collections.immutable_dict",
)


def check_graph(document: object, where: str) -> None:
    """Walk the JSON of an exported program.

    Raises:
        ModelError: an operator, expression, name or structure is not of the plain kind.
    """
    _walk(document, "", where)


def _walk(value: object, key: str, where: str) -> None:
    if isinstance(value, dict):
        for inner_key, inner in value.items():
            if not _PLAIN_TEXT.fullmatch(inner_key):
                raise _refusal(where, f"the name {inner_key[:60]!r}")
            if inner_key not in ("metadata", "guards_code"):  # descriptions; the guards are never compiled here
                _walk(inner, inner_key, where)
    elif isinstance(value, list):
        for inner in value:
            _walk(inner, key, where)
    elif isinstance(value, str):
        _check_text(value, key, where)


def _check_text(text: str, key: str, where: str) -> None:
    if key in ("target", "as_operator"):
        if not _OPERATORS.fullmatch(text) or _TOUCHES_FILES.fullmatch(text):
            raise _refusal(where, f"the operator {text[:60]!r}")
    elif key == "expr_str":
        _check_expression(text, where)
    elif key in ("in_spec", "out_spec"):
        if text:
            _check_structure(json.loads(text)[1], where)
    elif key in ("name", "as_name", "forward_arg_names"):
        if text and not _NAME.fullmatch(text):
            raise _refusal(where, f"the name {text[:60]!r}")
    elif key != "as_string" and not _PLAIN_TEXT.fullmatch(text):
        raise _refusal(where, f"the {key or 'text'} {text[:60]!r}")


def _check_expression(text: str, where: str) -> None:
    """An expression is evaluated when it is read: it must be plain, and no power may grow without end."""
    try:
        nodes = list(ast.walk(ast.parse(text.strip(), mode="eval"))) if len(text) <= _LONGEST_EXPRESSION else []
    except (SyntaxError, MemoryError):  # the second: nested deeper than the parser goes
        nodes = []
    fine = bool(nodes) and all(isinstance(node, _ARITHMETIC) and _is_plain(node) and _is_bounded(node) for node in nodes)
    if not fine:
        raise _refusal(where, f"the size expression {text[:60]!r}")


def _is_plain(node: ast.AST) -> bool:
    """Names are size symbols or known functions, constants are numbers or the names of size symbols, calls are of plain names."""
    if isinstance(node, ast.Name):
        return bool(_SYMBOL.fullmatch(node.id) or _FUNCTIONS.fullmatch(node.id))
    if isinstance(node, ast.Constant):
        text = node.value
        return isinstance(text, int | float) or (isinstance(text, str) and bool(_SYMBOL.fullmatch(text) or _NUMBER.fullmatch(text)))
    return not isinstance(node, ast.Call) or isinstance(node.func, ast.Name)


def _is_bounded(node: ast.AST) -> bool:
    """Powers and shifts, which could make numbers of any length, are of single terms by small constants."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow | ast.LShift):
        base, exponent = node.left, node.right
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _POWERS and len(node.args) == 2:
        base, exponent = node.args
    else:
        return True
    steps = _constant(exponent)
    return (
        steps is not None
        and abs(steps) <= _LARGEST_EXPONENT
        and (isinstance(base, ast.Name) or _is_symbol(base) or _constant(base) is not None)
    )


def _constant(node: ast.expr) -> float | None:
    """The value of ``3``, ``-3``, ``Integer(3)`` or ``Integer('3')``."""
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Integer", "Float") and len(node.args) == 1:
        node = node.args[0]
    try:
        return float(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str) else None
    except (ValueError, OverflowError):
        return None


def _is_symbol(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Symbol"


def _check_structure(structure: dict[str, object], where: str) -> None:
    kind, context, children = structure["type"], structure["context"], structure["children_spec"]
    if kind is not None and kind not in _STRUCTURES:
        raise _refusal(where, f"inputs or outputs of type {str(kind)[:60]!r}")
    if context is not None and not _CONTEXT.fullmatch(str(context)):
        raise _refusal(where, f"the structure {str(context)[:60]!r}")
    if not isinstance(children, list):
        raise _refusal(where, f"the structure {str(children)[:60]!r}")
    for child in children:
        _check_structure(child, where)


def _refusal(where: str, what: str) -> ModelError:
    return ModelError(
        where, f"its graph has {what}, which is not plain torch", "export a plain classifier of torch operators, or use safetensors"
    )
