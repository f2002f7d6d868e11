"""The pages of the API reference, as a hook of mkdocs.

What modules list in `__all__` is what the pages have: a new public name appears by itself, in the
chapter of the file that defines it. mkdocstrings renders each object once, under its shortest
public name; other names of it lead there. Docstrings and signatures are read from the source by
Griffe, with the changes of reference_objects.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

__all__ = ["Entry", "Page", "catalogue", "on_config", "on_files", "spelled"]

# Sections of the navigation, with the pages of each: title, then modules whose names it has.
SECTIONS = {
    "The library": {
        "Tensor": "tensor",
        "Backends": "backend",
        "Devices": "devices",
        "Dtypes": "dtypes",
        "Errors": "errors",
        "Types": "typing",
        "Trees": "tree",
        "Every name of ember_ml": ".",
    },
    "Ops": {
        "ops": "ops",
        "ops.linalg": "ops.linalg",
        "ops.fft": "ops.fft",
        "ops.random": "ops.random",
        "ops.losses": "ops.losses",
        "ops.signal": "ops.signal",
        "ops.stats": "ops.stats",
    },
    "Gradients and memory": {
        "Gradients and jit": "autodiff",
        "Memory": "memory",
    },
    "Networks": {
        "nn": "nn",
        "nn.modules": "nn.modules",
        "nn.modules.activations": "nn.modules.activations",
        "nn.layers": "nn.layers",
        "nn.initializers": "nn.initializers",
        "nn.losses": "nn.losses",
        "nn.wirings": "nn.wirings",
        "nn.features": "nn.features",
        "nn.tensor": "nn.tensor",
    },
    "Training and models": {
        "Training": "training",
        "Models": "models",
        "Registry": "registry",
        "Features": "features",
        "Several processes": "distributed distributed.strategy distributed.scaling",
    },
    "Graphs and files": {
        "Graphs": "graph graph.executors.runtime",
        "WebNN": "webnn",
        "Files": "io",
    },
    "Extending": {
        "Testing": "testing",
        "Benchmarks": "bench",
        "The compiled core": "compiled",
    },
}

# Modules whose entries are spread over pages: title, then the files that define what it has. What
# is defined in a file that none of them names gets a page of its own.
CHAPTERS = {
    "ops": {
        "Creation and constants": "creation interchange data_types info",
        "Element by element": "elementwise arithmetic special",
        "Bits": "bits",
        "Shapes and joining": "manipulation arranging stacking padding",
        "Reductions": "reduction reduce_names nan_reductions",
        "Statistics": "statistics quantiles counting calculus",
        "Searching and indexing": "searching indexing lookup",
        "Scatter and updates": "scattering updates",
        "Products": "products contraction affine",
        "Control flow": "control",
        "Activations": "activations",
        "Attention and normalisation": "attention normalization dropping",
        "Convolution and pooling": "convolution pooling resizing",
    },
    "nn": {
        "Modules and parameters": "module parameter model modules.containers",
        "Linear and embedding": "modules.linear modules.embedding",
        "Activation layers": "modules.activation_layers",
        "Attention layers": "modules.attention modules.kv_cache",
        "Normalisation layers": "modules.batch_normalization modules.normalization",
        "Dropout": "modules.dropout",
        "Convolution layers": "modules.convolution",
        "Pooling layers": "modules.pooling",
        "Shapes and images": "modules.arranging",
        "Recurrent layers": "modules.recurrent",
        "Liquid layers": "modules.liquid",
    },
    "training": {
        "Trainer and history": "trainer history accumulation clipping precision errors",
        "Optimizers": "optimizers",
        "Schedules": "schedules",
        "Metrics": "metrics",
        "Callbacks": "callbacks",
        "Data": "data",
    },
}

# Modules that hold names of others: they list them, and leave the entries to those.
LISTS = {".", "nn.losses", "nn.modules", "nn.modules.activations", "nn.tensor", "ops.stats"}
# Two names of one module.
SAME = {"ember_ml.ops.linearalg"}
# Objects with more to show than what their own class defines.
INHERITING = {"ember_ml.Tensor"}


@dataclass
class Entry:
    """A public object: what it is, and every name under which users reach it."""

    value: Any
    paths: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The shortest name, which is the title of the entry."""
        own = getattr(self.value, "__name__", "")  # abs and not absolute, Tensor, not EmberTensor
        order = sorted(self.paths, key=lambda path: path.rpartition(".")[2] != own)
        return min(order, key=lambda path: path.count("."))


@dataclass
class Page:
    """A page of the reference: modules by their docstrings, a table of names, entries."""

    section: str
    title: str
    modules: list[str] = field(default_factory=list)
    names: dict[str, Entry] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)

    @property
    def uri(self) -> str:
        """Where the page is, below docs/."""
        words = "".join(letter if letter.isalnum() else " " for letter in self.title.lower())
        return f"reference/{'-'.join(words.split())}.md"


def spelled(path: str) -> str:
    """A name as users write it: `em.save`, `ops.add`, `nn.Linear`."""
    rest = path.removeprefix("ember_ml.")
    return rest if "." in rest else f"em.{rest}"


def catalogue() -> list[Page]:
    """Every page with its names, in the order of the navigation; each object is an entry of one."""
    pages = {title: Page(section, title) for section, title, _ in _places()}
    entries: dict[object, Entry] = {}
    placed: set[int] = set()
    for _, title, place in _places():
        for module in _with_inner(place):
            pages[title].modules.append(module)
            for path, value in _names(module):
                entry = entries.setdefault(_identity(path, value), Entry(value))
                entry.paths.append(path)
                pages[title].names[path] = entry
    for title, place in _claims():
        for path, entry in list(pages[title].names.items()):
            if id(entry) in placed or isinstance(entry.value, ModuleType):
                continue
            placed.add(id(entry))
            page = pages[title]
            if place in CHAPTERS:
                own = _chapter(place, entry.value)
                page = pages.setdefault(own, Page(page.section, own)) if own else page
                page.names[path] = entry
            page.entries.append(entry)
    return _ordered(pages)


def _places() -> list[tuple[str, str, str]]:
    """Section, title and module of each place that the navigation names."""
    return [
        (section, title, place)
        for section, titles in SECTIONS.items()
        for title, places in titles.items()
        for place in places.split()
    ]


def _claims() -> list[tuple[str, str]]:
    """Places in the order in which they get entries: ops first, ops.linalg before ops."""
    rows = [(title, place) for _, title, place in _places()]
    return sorted(rows, key=lambda row: (row[1] in LISTS, row[1][:3] != "ops", -row[1].count(".")))


def _ordered(pages: dict[str, Page]) -> list[Page]:
    """Pages in the order of the navigation, chapters behind the module that is spread over them."""
    found: list[Page] = []
    for _, title, place in _places():
        known = list(CHAPTERS.get(place, {}))
        new = [other for other in pages if other.startswith(f"{place}: ")]
        found += [
            pages[one] for one in (title, *known, *new) if one in pages and pages[one] not in found
        ]
    return found


def _with_inner(place: str) -> list[str]:
    """A module, and those among its names that have no page of their own: they are part of its."""
    public = f"ember_ml.{place}".rstrip(".")
    own = {f"ember_ml.{other}" for _, _, other in _places()}
    inner = [
        path
        for path, value in _names(public)
        if isinstance(value, ModuleType) and path not in own and path not in SAME
    ]
    return [public, *(inner if place != "." else [])]


def _names(module: str) -> Iterator[tuple[str, Any]]:
    found = resolve_name(module)
    for name in sorted(found.__all__, key=str.lower):
        yield f"{module}.{name}", getattr(found, name)


def _chapter(place: str, value: Any) -> str | None:
    """The title of the page for what is defined in this file, or None: that of the module."""
    root = f"ember_ml.{place}."
    defined = getattr(value, "__module__", None)
    if not isinstance(defined, str) or not defined.startswith(root):
        return None
    file = defined.removeprefix(root)
    for title, files in CHAPTERS[place].items():
        for known in files.split():
            if file == known or file.startswith(f"{known}."):
                return title
    return f"{place}: {file.replace('_', ' ')}"


def _identity(path: str, value: Any) -> object:
    """Functions and classes that are one get one entry, and values of one name."""
    home = getattr(value, "__module__", None) or ""
    if hasattr(value, "__qualname__") and home.startswith("ember_ml"):
        return id(value)
    if type(value).__module__.startswith("ember_ml."):
        return id(value), path.rpartition(".")[2]
    return path


# --- Markdown --------------------------------------------------------------------------------


def _first_line(value: Any) -> str:
    """The one line of meaning, as a cell of a table."""
    text = getattr(value, "__doc__", None)
    if not text or (not callable(value) and not isinstance(value, ModuleType)):
        return ""  # the docstring of a number is that of its class
    line = text.strip().split("\n\n")[0].replace("\n", " ")
    return " ".join(line.split()).replace("|", "\\|").rstrip(":")


def _markdown(page: Page, homes: dict[str, Page]) -> str:
    lines = [f"# {page.title}", ""]
    for module in page.modules:
        lines += [f"::: {module}", "    options:", "      members: false"]
        lines += [f"      heading: '{module}'", f"      toc_label: '{module}'", ""]
    lines += ["| name | |", "|---|---|"]
    for path, entry in page.names.items():
        target = f"[`{spelled(path)}`][{entry.path}]"
        if path in homes:
            target = f"[`{spelled(path)}`]({homes[path].uri.removeprefix('reference/')})"
        lines.append(f"| {target} | {_first_line(entry.value)} |")
    lines.append("")
    for entry in sorted(page.entries, key=lambda entry: entry.path.rpartition(".")[2].lower()):
        lines += _block(entry)
    return "\n".join(lines)


def _block(entry: Entry) -> list[str]:
    name = spelled(entry.path)
    lines = [f"::: {entry.path}", "    options:", f"      heading: '{name}'"]
    lines.append(f"      toc_label: '{name.rpartition('.')[2]}'")
    if entry.path in INHERITING:
        lines.append("      inherited_members: true")
    others = [f"`{spelled(path)}`" for path in entry.paths if path != entry.path]
    if others:
        lines += ["", f"Also {', '.join(others)}.", "{ .also }"]
    return [*lines, ""]


def _overview(pages: list[Page]) -> str:
    lines = ["# Reference", ""]
    lines += [
        "Every public name, by chapter, from the docstrings of the source. Their examples run",
        "",
    ]
    lines[-2] += " as tests."
    for section in SECTIONS:
        lines += [f"## {section}", "", "| page | names |", "|---|---|"]
        for page in pages:
            if page.section == section:
                names = [f"`{path.rpartition('.')[2]}`" for path in page.names]
                shown = " ".join(names[:12]) + (
                    f" and {len(names) - 12} more" if names[12:] else ""
                )
                lines.append(f"| [{page.title}]({page.uri.removeprefix('reference/')}) | {shown} |")
        lines.append("")
    return "\n".join(lines)


# --- Events of mkdocs ------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages into the navigation, below `Reference`."""
    pages = catalogue()
    tree: list[Any] = ["reference/index.md"]
    for section in SECTIONS:
        own = [page for page in pages if page.section == section]
        tree.append({section: [{page.title: page.uri} for page in own]})
    assert config.nav is not None
    for item in config.nav:
        if "Reference" in item:
            item["Reference"] = tree
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Write the pages."""
    pages = catalogue()
    homes = {module: page for page in pages for module in page.modules}
    files.append(File.generated(config, "reference/index.md", content=_overview(pages)))
    for page in pages:
        text = _markdown(page, homes)
        files.append(File.generated(config, page.uri, content=text))
    return files
