"""What the API reference changes in objects that Griffe reads, as an extension of it.

- Names which modules import when they are first used are found by importing the modules.
- Markers of dtype, device and rank leave the signatures: `Tensor[D, V, R]` is a `Tensor` there,
  and docs/typing.md tells of the rest.
- Examples become blocks of code: in Markdown, `>>>` would be three quotations.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.append(str(Path(__file__).parent))  # Griffe loads this file by its path

from reference_pages import catalogue

__all__ = ["PublicObjects", "fenced", "plain"]

# What annotations of ops say to type checkers, in words that readers know.
WORDS = {
    "Like": "TensorLike",
    "LikeFloat": "TensorLike",
    "LikeParts": "TensorLike",
    "LikeTotal": "TensorLike",
    "Marked": "TensorLike",
    "Beside": "TensorLike",
    "Limit": "TensorLike | None",
    "DTypeOf": "DTypeLike | None",
}
MARKED = {"Tensor", "GradTensor", "DType", "Sharing", "TensorView", "TensorViewMut"}


class PublicObjects(griffe.Extension):
    """The extension: names, signatures and examples."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Change what was read, once all of it is there."""
        _simplify(pkg)
        _add_names(pkg)


def _simplify(obj: griffe.Object) -> None:
    """Plain words in annotations and fences around examples, of an object and its members."""
    if obj.docstring is not None:
        obj.docstring.value = fenced(obj.docstring.value)
    if isinstance(obj, griffe.Function):
        for parameter in obj.parameters:
            parameter.annotation = plain(parameter.annotation)
        obj.returns = plain(obj.returns)
    elif isinstance(obj, griffe.Attribute):
        obj.annotation = plain(obj.annotation)
    for member in obj.members.values():
        if not member.is_alias:
            _simplify(member)


def _add_names(pkg: griffe.Module) -> None:
    """Add the names that only running modules have."""
    changes = []
    for page in catalogue():
        for path, entry in page.names.items():
            parent, _, name = path.rpartition(".")
            module, home = _module(pkg, parent), _home(entry.value)
            if home is None:
                if not _is_ours(module.members.get(name)):  # the number pi
                    value = griffe.Attribute(name, value=repr(entry.value), parent=module)
                    changes.append((module, name, value))
            elif home != (module.path, name):
                changes.append((module, name, _module(pkg, home[0]).members[home[1]]))
    # All are found before the first is set: a function may have the name of its file.
    for module, name, found in changes:
        known = module.members.get(name)
        if found is known:
            continue
        if known is not None:
            module.del_member(name)
        if found.name == name and (found.parent is module or found.parent is known):
            found.parent = module
            module.set_member(name, found)
        else:
            module.set_member(name, griffe.Alias(name, found, parent=module))


def _module(pkg: griffe.Module, path: str) -> griffe.Module:
    """The module of a public path, which may be another name of it: ops.linalg is ops.linearalg."""
    found: Any = pkg
    for part in path.split(".")[1:]:
        found = found.members[part]
        if found.is_alias:
            found = _module(pkg, found.target_path)
    return found


def _is_ours(known: Any) -> bool:
    """Whether the source describes a value."""
    return known is not None and (not known.is_alias or known.target_path.startswith("ember_ml"))


def _home(value: Any) -> tuple[str, str] | None:
    """The module that defines an object, and its name there; None for plain values."""
    home, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(home, str) or not isinstance(name, str) or not home.startswith("ember_ml"):
        return None
    return (home, name) if getattr(sys.modules[home], name, None) is value else None


def plain(annotation: Any) -> Any:
    """An annotation without markers.

    >>> plain("LikeFloat[D, V, R] | Tensor[D]")
    'TensorLike | Tensor'
    """
    if annotation is None:
        return None
    text = str(annotation).strip("'\"")
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return annotation
    return ast.unparse(_Plain().visit(tree))


class _Plain(ast.NodeTransformer):
    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        match node.value:
            case ast.Name(id=name) if name in MARKED:
                return ast.Name(name)
            case ast.Name(id=name) if name in WORDS:
                return ast.Name(WORDS[name])
        return self.generic_visit(node)


EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


def fenced(text: str) -> str:
    r"""A docstring whose examples are blocks of code.

    >>> fenced("One.\n\n>>> 1\n1").splitlines()
    ['One.', '', '```pycon', '>>> 1', '1', '```']
    """

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}```pycon\n{match[0]}\n{match[1]}```"

    return EXAMPLE.sub(block, text)
