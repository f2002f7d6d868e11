"""Models from folders as Hugging Face lays them out, and into them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from ember_ml import dtypes, ops
from ember_ml.backend.selection import use_backend
from ember_ml.dtypes import DTypeLike
from ember_ml.errors import DTypeError, FormatError, ShapeError
from ember_ml.models import layouts
from ember_ml.models.base import ConfigModel
from ember_ml.nn import loading, moving
from ember_ml.registry import configs, default
from ember_ml.tensor.core import Tensor

if TYPE_CHECKING:
    from rich.console import Group

    from ember_ml.io import TensorFile

__all__ = ["LoadedReport", "from_pretrained", "save_pretrained"]

_CONFIG: Final = "config.json"
# The `model_type` of folders that hold a model in our own names.
_OWN: Final = "ember_ml"
# Prefixes that models with other heads put before the names of the base model.
_PREFIXES: Final = ("bert.", "roberta.", "distilbert.", "transformer.", "model.")


@dataclass(frozen=True, slots=True)
class LoadedReport:
    """What of a folder went into a model; printed, it is a table."""

    folder: str
    # How many parameters were loaded.
    loaded: int
    # Parameters of the model that the file does not have, and tensors of the file that the model
    # does not have.
    missing: tuple[str, ...]
    unused: tuple[str, ...]
    # (name, shape of the model, shape of the file).
    mismatched: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = ()

    def __rich__(self) -> Group:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SQUARE)
        table.add_column("tensor", overflow="fold")
        table.add_column("what")
        for name, own, given in self.mismatched:
            table.add_row(Text(name), f"{own} in the model, {given} in the file")
        for name in self.missing:
            table.add_row(Text(name), "missing in the file")
        for name in self.unused:
            table.add_row(Text(name), "not used by the model")
        if not table.row_count:
            table.add_row("all", "loaded")
        return Group(Text(f"{self.loaded} parameters from {self.folder}"), table)

    def __str__(self) -> str:
        from rich.console import Console

        out = StringIO()
        Console(file=out, width=110, color_system=None).print(self)
        return out.getvalue().rstrip("\n")

    __repr__ = __str__


def from_pretrained(
    folder: str | os.PathLike[str],
    backend: Any = None,
    dtype: DTypeLike = None,
    *,
    strict: bool = True,
) -> Any:
    """The model that a folder holds: config.json with model.safetensors, shards or a .bin file.

    It reads BERT, RoBERTa, DistilBERT, GPT-2 and Llama of Hugging Face, and what `save_pretrained`
    wrote. `backend` is a name or a context such as `em.use_backend("torch")`; `dtype` is that of
    the file unless it is given. Nothing is printed: `model.load_report` is a table of what was not
    used. What is missing raises FormatError with that table, or with `strict=False` keeps its
    first values. The model is in `eval` mode.

    >>> import tempfile
    >>> from ember_ml import models
    >>> folder = tempfile.mkdtemp()
    >>> models.MLP(in_features=2, out_features=1).save_pretrained(folder)
    >>> model = models.from_pretrained(folder)
    >>> type(model).__name__, model.load_report.unused
    ('MLP', ())
    """
    from ember_ml.io import open_file

    path = os.fspath(folder)
    data = _read_config(path)
    with configs.on(backend), open_file(path, backend=_current()) as file:
        try:
            if data.get("model_type") == _OWN:
                model, state, unused = _own(data, file)
            else:
                model, state, unused = _theirs(data, file)
        except FormatError as error:
            raise FormatError(f"'{path}': {error}") from error
        wanted = _dtype_of(state) if dtype is None else dtypes.to_dtype(dtype)
        if wanted is not None:
            model.to(dtype=wanted)  # of what the file does not have as well
        report = _load(model, state, path, unused, strict)
    model.load_report = report
    return model.eval()


def _current() -> str:
    from ember_ml.backend.selection import get_backend

    return get_backend()


def _read_config(path: str) -> dict[str, Any]:
    file = os.path.join(path, _CONFIG)
    if not os.path.isdir(path):
        raise FileNotFoundError(
            f"from_pretrained: '{path}' is no folder; it takes one with {_CONFIG} and the weights"
        )
    try:
        with open(file, encoding="utf-8") as opened:
            data = json.load(opened)
    except FileNotFoundError:
        there = ", ".join(sorted(os.listdir(path))[:8]) or "no files"
        raise FileNotFoundError(
            f"from_pretrained: '{path}' has no {_CONFIG}; it has {there}"
        ) from None
    except ValueError as error:
        raise FormatError(f"'{file}' is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise FormatError(f"'{file}' holds {type(data).__name__}, not the options of a model")
    return data


def _dtype_of(state: Mapping[str, Tensor]) -> dtypes.DType | None:
    for x in state.values():
        if x.dtype.is_floating:
            return x.dtype
    return None


def _own(data: Mapping[str, Any], file: TensorFile) -> tuple[Any, dict[str, Tensor], list[str]]:
    """A model in our own names."""
    config = default.from_dict({key: data.get(key) for key in ("type", "config")})
    model = config.build()
    loading._size_lazy(model, file)
    names = set(model.state_dict())
    state = {name: file[name] for name in file if name in names}
    return model, state, [name for name in file if name not in names]


def _theirs(data: Mapping[str, Any], file: TensorFile) -> tuple[Any, dict[str, Tensor], list[str]]:
    """A model in the names of Hugging Face."""
    kind = data.get("model_type")
    layout = layouts.LAYOUTS.get(str(kind))
    if layout is None:
        raise FormatError(
            f"config.json has model_type={kind!r}; known are {', '.join(layouts.LAYOUTS)}, and "
            f"{_OWN} of save_pretrained"
        )
    names = _base_names(layout, file)
    config = layout.read(data, frozenset(names))
    model = config.build()
    state: dict[str, Tensor] = {}
    for rule in layout.rules(config):
        given = names.pop(rule.theirs, None)
        if given is not None:
            state.update(_split(rule, file[given]))
    if not any(rule.theirs == "lm_head.weight" for rule in layout.rules(config)):
        names.pop("lm_head.weight", None)  # the table of the tokens once more
    unused = [file_name for own, file_name in names.items() if not layout.constants.fullmatch(own)]
    return model, state, unused


def _base_names(layout: layouts.Layout, file: TensorFile) -> dict[str, str]:
    """Names of the file by those of the rules: without the prefix of the base model."""
    firsts = layout.firsts
    prefix = ""
    for known in _PREFIXES:
        if any(n.startswith(known) and n[len(known) :].partition(".")[0] in firsts for n in file):
            prefix = known
            break
    return {name.removeprefix(prefix): name for name in file}


def _split(rule: layouts.Rule, given: Tensor) -> dict[str, Tensor]:
    value = given.T if rule.transposed else given
    count = len(rule.ours)
    if count == 1:
        return {rule.ours[0]: value}
    if value.shape[0] % count:
        raise FormatError(f"{rule.theirs} has shape {given.shape}, which {count} cannot share")
    part = value.shape[0] // count
    return {name: value[n * part : (n + 1) * part] for n, name in enumerate(rule.ours)}


def _load(
    model: Any, state: dict[str, Tensor], path: str, unused: list[str], strict: bool
) -> LoadedReport:
    there = dict(loading.kept(model))
    wrong = tuple(
        (name, there[name].shape, value.shape)
        for name, value in state.items()
        if name in there and there[name].shape != value.shape
    )
    missing = tuple(name for name in there if name not in state)
    report = LoadedReport(path, len(state) - len(wrong), missing, tuple(unused), wrong)
    if wrong:
        raise ShapeError(f"from_pretrained: shapes do not fit\n{report}")
    if missing and strict:
        raise FormatError(
            f"from_pretrained: {len(missing)} parameters are missing; strict=False keeps their "
            f"first values\n{report}"
        )
    for name, value in state.items():
        x = there[name]
        # The file's memory takes the place of the first values: nothing is written twice.
        cast = value.astype(x.dtype, copy=False) if x.dtype.is_floating else value
        moving.become(x, cast if type(cast) is Tensor else cast.copy())
    return report


# --- Writing ------------------------------------------------------------------------------------


def save_pretrained(
    model: ConfigModel[Any],
    folder: str | os.PathLike[str],
    *,
    max_shard_size: int | str | None = None,
) -> None:
    """Write config.json and model.safetensors, or shards of at most `max_shard_size`, to a folder.

    Encoders and decoders that Hugging Face has as well are written in its names, so that
    transformers can read them; other models in ours.

    >>> import os, tempfile
    >>> from ember_ml import models
    >>> folder = tempfile.mkdtemp()
    >>> models.save_pretrained(models.Decoder(hidden_size=8, num_layers=1, num_heads=2), folder)
    >>> sorted(os.listdir(folder))
    ['config.json', 'model.safetensors']
    """
    from ember_ml.io import save
    from ember_ml.io.atomic import replacing
    from ember_ml.nn.module import require_built

    if not isinstance(model, ConfigModel):
        raise DTypeError(
            f"save_pretrained takes a model of ember_ml.models, not {type(model).__name__}; "
            f"em.save(path, model) keeps any module"
        )
    require_built(model, "save_pretrained")
    path = os.fspath(folder)
    os.makedirs(path, exist_ok=True)
    state = model.state_dict()
    layout = layouts.layout_of(model.config)
    if layout is None:
        data = {"model_type": _OWN, **default.to_dict(model.config)}
    else:
        first = next(iter(state.values()))
        data = {
            "architectures": [layout.architecture],
            "model_type": layout.model_type,
            **layout.write(model.config),
            "torch_dtype": first.dtype.name,
        }
        rules = layout.rules(model.config)
        state = {layout.file_name(rule.theirs): _joined(rule, state) for rule in rules}
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    save(os.path.join(path, ""), state, max_shard_size=max_shard_size)
    with replacing(os.path.join(path, _CONFIG)) as file:
        file.write(text.encode("utf-8"))


def _joined(rule: layouts.Rule, state: Mapping[str, Tensor]) -> Tensor:
    parts = [state[name] for name in rule.ours]
    with use_backend(parts[0].backend):
        value = parts[0] if len(parts) == 1 else ops.concat(parts, axis=0)
    return value.T if rule.transposed and value.ndim == 2 else value
