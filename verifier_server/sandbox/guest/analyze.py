"""Measures a program's text. Parses it and never runs it, in a jail of its own: a process that also ran the
program could forge these numbers. The service range-checks them all the same.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import json
import sys

from radon.complexity import cc_visit_ast
from radon.metrics import h_visit_ast

_NODE_TYPES_MAX = 512
_CLOCK = {"time", "datetime", "calendar"}
_ENTROPY = {"random", "secrets", "uuid"}
_INTROSPECTION = {"gc", "inspect", "sys", "ctypes", "traceback", "importlib"}
_INTROSPECTION_CALLS = {"id", "hash", "globals", "locals", "vars", "eval", "exec", "compile", "__import__", "open"}
# Through these what differs between interpreters, hash order and addresses of objects, can reach a result. Evadable.
_INTERPRETER_NAMES = {"set", "frozenset", "hash", "id", "object", "globals", "vars", "eval", "exec", "__import__"}
_TEXT_MAKERS = {"str", "repr", "ascii", "format", "print"}
# Modules that neither read the outside world nor look into the interpreter.
ALLOWED_MODULES = {
    *("__future__", "abc", "array", "bisect", "calendar", "cmath", "collections", "copy", "dataclasses", "decimal"),
    *("difflib", "enum", "fractions", "functools", "hashlib", "heapq", "itertools", "json", "math", "numbers", "numpy"),
    *("operator", "re", "statistics", "string", "struct", "textwrap", "types", "typing", "unicodedata", "zlib"),
}
_LINE_NODES = (ast.stmt, ast.ExceptHandler)


def analyze(source: bytes, entry_point: str, allowed_modules: list[str]) -> bytes:
    """Return the measures as JSON, or `{"error": kind, "detail": text}`.

    `allowed_modules` are those whose import is no finding; empty means ALLOWED_MODULES.
    """
    sys.set_int_max_str_digits(0)
    try:
        tree = ast.parse(source)
        return json.dumps(measure(tree, entry_point, set(allowed_modules) or ALLOWED_MODULES)).encode()
    except (RecursionError, MemoryError) as error:
        return json.dumps({"error": "too_deep", "detail": type(error).__name__}).encode()
    except (SyntaxError, ValueError, SystemError) as error:
        detail = f"{type(error).__name__}: {error}"[:500]
        return json.dumps({"error": "syntax", "detail": detail}).encode()


def measure(tree: ast.Module, entry_point: str, allowed_modules: set[str]) -> dict[str, object]:
    """Return every measure of one syntax tree."""
    nodes = list(ast.walk(tree))
    entry = find_entry_point(tree, entry_point)
    halstead = h_visit_ast(tree).total
    blocks = cc_visit_ast(tree)
    imports = find_imports(nodes)
    return {
        "ast_hash": hashlib.sha256(normalise(tree).encode("utf-8", "backslashreplace")).hexdigest(),
        "node_types": [type(node).__name__ for node in nodes[:_NODE_TYPES_MAX]],
        "depth": measure_depth(tree),
        "nodes": len(nodes),
        "cyclomatic_complexity": max(1, sum(block.complexity for block in blocks)),
        "lines": sum(isinstance(node, _LINE_NODES) for node in nodes),
        "variables": len({n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}),
        "halstead_volume": halstead.volume,
        "halstead_difficulty": halstead.difficulty,
        "imports": imports,
        "findings": [*find_remarks(nodes, imports, entry), *find_forbidden(imports, allowed_modules)],
    }


def find_entry_point(tree: ast.Module, name: str) -> ast.stmt | None:
    """Return the definition that `name` is bound to last at the top level (a function, class or assignment)."""
    found: ast.stmt | None = None
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name:
            found = node
        elif any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(node)):
            found = node
        elif isinstance(node, (ast.Import, ast.ImportFrom)) and any(
            name in (alias.asname, alias.name) for alias in node.names
        ):
            found = node
    return found


def measure_depth(tree: ast.AST) -> int:
    """Return the number of nodes on the longest path from the root, without recursion."""
    deepest, stack = 0, [(tree, 1)]
    while stack:
        node, depth = stack.pop()
        deepest = max(deepest, depth)
        stack.extend((child, depth + 1) for child in ast.iter_child_nodes(node))
    return deepest


def normalise(tree: ast.Module) -> str:
    """Return a dump of the tree in which chosen names, annotations of parameters and docstrings do not matter."""
    tree = copy.deepcopy(tree)
    chosen = find_chosen_names(tree)
    names: dict[str, str] = {}

    def rename(name: str) -> str:
        return names.setdefault(name, f"v{len(names)}") if name in chosen else name

    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = rename(node.id)
        elif isinstance(node, ast.arg):
            node.arg, node.annotation = rename(node.arg), None
        elif isinstance(node, ast.keyword):
            node.arg = rename(node.arg) if node.arg else None
        elif isinstance(node, ast.ExceptHandler):
            node.name = rename(node.name) if node.name else None
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            node.name = rename(node.name)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            node.names = [rename(name) for name in node.names]
        body = getattr(node, "body", None)
        if isinstance(body, list) and len(body) > 1 and is_docstring(body[0]):
            del body[0]
    return ast.dump(tree)


def find_chosen_names(tree: ast.Module) -> set[str]:
    """Return the names that the program itself binds, so that another choice would be the same program."""
    chosen: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            chosen.add(node.id)
        elif isinstance(node, ast.arg):
            chosen.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)):
            chosen.add(node.name or "")
    return chosen


def is_docstring(node: ast.AST) -> bool:
    """Whether a statement is a bare string."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def find_imports(nodes: list[ast.AST]) -> list[str]:
    """Return the sorted names of top-level modules in import statements."""
    modules: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            modules.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules.add((node.module or ".").split(".")[0])
    return sorted(modules)[:64]


def find_forbidden(imports: list[str], allowed_modules: set[str]) -> list[list[str]]:
    """Return the finding for imports beyond the policy. By text only: `__import__` passes, so it is no protection."""
    forbidden = [name for name in imports if name not in allowed_modules]
    return [["module_not_allowed", ", ".join(forbidden)[:200]]] if forbidden else []


def sees_interpreter(nodes: list[ast.AST], used: set[str], attributes: set[str]) -> str:
    """Return what in the text can let hash order or an object's address reach a result, or an empty text."""
    hits = sorted(_INTERPRETER_NAMES & (used | attributes))
    if any(isinstance(node, (ast.Set, ast.SetComp)) for node in nodes):
        hits.append("{...}")
    functions = {n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    if any(is_object(part, functions) for node in nodes for part in find_shown(node)):
        hits.append("text of an object")
    return ", ".join([*hits, *sorted(name for name in attributes if name.startswith("__"))])


def find_shown(node: ast.AST) -> list[ast.expr]:
    """Return what a node makes text of: f-strings, str() and its kin, `%` and `.format()`."""
    if isinstance(node, ast.FormattedValue):
        return [node.value]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return [*node.right.elts] if isinstance(node.right, ast.Tuple) else [node.right]
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name in _TEXT_MAKERS:
            return [*node.args, *(keyword.value for keyword in node.keywords)]
    return []


def is_object(node: ast.expr, functions: set[str]) -> bool:
    """Whether an expression is no plain value by its looks: a lambda, a generator, a method, a function."""
    if isinstance(node, ast.Name):
        return node.id in functions
    return isinstance(node, (ast.Lambda, ast.GeneratorExp, ast.Attribute))


def find_remarks(nodes: list[ast.AST], imports: list[str], entry: ast.stmt | None) -> list[list[str]]:
    """Return findings as [code, detail] pairs."""
    remarks = []
    used = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    attributes = {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    for code, modules in (("reads_clock", _CLOCK), ("reads_entropy", _ENTROPY), ("introspects", _INTROSPECTION)):
        hits = sorted(modules & set(imports))
        if code == "reads_entropy" and "urandom" in attributes:
            hits.append("os.urandom")
        if code == "introspects":
            hits += sorted(_INTROSPECTION_CALLS & used) + sorted(a for a in attributes if a.startswith("__"))
        if hits:
            remarks.append([code, ", ".join(hits)[:200]])
    interpreter = sees_interpreter(nodes, used, attributes)
    if interpreter:
        remarks.append(["sees_interpreter", interpreter[:200]])
    if isinstance(entry, (ast.FunctionDef, ast.AsyncFunctionDef)):
        parameters = {arg.arg for arg in ast.walk(entry.args) if isinstance(arg, ast.arg)}
        inside = {n.id for n in ast.walk(entry) if isinstance(n, ast.Name)}
        if parameters - inside:
            remarks.append(["unused_parameter", ", ".join(sorted(parameters - inside))[:200]])
    return remarks
