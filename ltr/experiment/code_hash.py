"""A hash of what code computes: its statements, whatever file, order and words they stand in."""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

_SAYS = ("debug", "info", "warning", "error", "exception")  # methods of ``log``


def code_hash(sources: Iterable[str]) -> str:
    """SHA-256 of the statements of Python modules.

    Comments, docstrings, layout, the order of the definitions and the modules they stand in do not
    count, nor do the texts of errors and of the log. An import from ``ltr`` counts only where
    several definitions share the imported name: elsewhere the name says what is meant. A text that
    is no Python counts as it is.

    Args:
        sources: the text of each module.

    >>> before = code_hash(["x = 1  # one", "def f(a):\\n    'Double.'\\n    return 2 * a"])
    >>> before == code_hash(["def f(a):\\n    return 2 * a\\nx = 1"])
    True
    >>> before == code_hash(["def f(a):\\n    return 3 * a\\nx = 1"])
    False
    """
    modules, found = [], []
    for source in sources:
        try:
            modules.append(ast.parse(source))
        except SyntaxError:
            found.append(source)
    names = Counter(name for module in modules for part in module.body for name in _defined(part))
    quiet = _Quiet({name for name, times in names.items() if times > 1})
    imports: set[str] = set()  # that two modules share they need once when they are one
    for module in modules:
        for part in quiet.visit(module).body:
            if isinstance(part, (ast.Import, ast.ImportFrom)):
                imports.update(_imports(part))
            elif "__all__" not in _defined(part):
                found.append(ast.unparse(part))
    return hashlib.sha256("\0".join(sorted([*found, *imports])).encode()).hexdigest()


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _imports(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """A text for each name; none for a name of ``ltr`` that says itself what is meant."""
    module = statement.module if isinstance(statement, ast.ImportFrom) else None
    for alias in statement.names:
        if module != "ltr" or alias.asname is not None:
            yield f"{module} {alias.name} {alias.asname}"


class _Quiet(ast.NodeTransformer):
    """Takes out docstrings, texts of errors and of the log, and where ``ltr`` defines a name."""

    def __init__(self, shared: set[str]) -> None:
        self._shared = shared

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not _is_text(part)]  # type: ignore[attr-defined]
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if f"{node.module}.".startswith("ltr.") and not any(
            alias.name in self._shared for alias in node.names
        ):
            node.module = "ltr"
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        if isinstance(function, ast.Attribute):
            to_log = isinstance(function.value, ast.Name) and function.value.id == "log"
            says = function.attr.endswith("Error") or (to_log and function.attr in _SAYS)
        else:
            says = isinstance(function, ast.Name) and function.id.endswith("Error")
        if says:
            node.args = [ast.Constant("") if _words(part) else part for part in node.args]
        return node


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _words(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
