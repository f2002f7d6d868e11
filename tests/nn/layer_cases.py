"""One case or more for each layer: how it is made, what comes in, and its twin in PyTorch.

A twin is a module of PyTorch with the same parameters by the same names, or a function of tensors
where PyTorch has no such layer. It is made when a test asks for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ember_ml import nn, ops

__all__ = ["CASES", "OWNED", "LayerCase", "drawn"]

Array = np.ndarray[Any, Any]

# The files whose layers are tested here; tests over nn.index demand a case of each.
OWNED = frozenset(
    f"modules.{name}"
    for name in (
        "activation_layers",
        "arranging",
        "batch_normalization",
        "convolution",
        "dropout",
        "embedding",
        "linear",
        "normalization",
        "pooling",
    )
)


def drawn(seed: str, shape: tuple[int, ...], low: float = -2.0, high: float = 2.0) -> Array:
    """The same numbers for a name, no two of which are equal."""
    generator = np.random.Generator(np.random.Philox(zlib.crc32(seed.encode())))
    return generator.uniform(low, high, shape).astype(np.float32)


@dataclass(frozen=True)
class LayerCase:
    """A layer with its inputs and its twin."""

    name: str
    label: str
    args: tuple[Any, ...]
    options: dict[str, Any]
    # Shapes of float inputs, or arrays.
    given: tuple[Any, ...]
    twin: Callable[[Any], Any]
    # Drawn by chance in training, where no twin gives the same.
    random: bool = False
    # Sizes that no empty batch can have, or values that it needs.
    empty: bool = True

    @property
    def id(self) -> str:
        """A name for reports."""
        return f"{self.name}-{self.label}" if self.label else self.name

    def make(self) -> Any:
        """The layer, with the same parameters every time."""
        with ops.random.use_seed(7):
            return getattr(nn, self.name)(*self.args, **self.options)

    def arrays(self) -> list[Array]:
        """The inputs."""
        return [
            drawn(f"{self.id}{place}", one) if isinstance(one, tuple) else one
            for place, one in enumerate(self.given)
        ]


_TORCH = {
    "HardShrink": "Hardshrink",
    "HardSigmoid": "Hardsigmoid",
    "HardSwish": "Hardswish",
    "HardTanh": "Hardtanh",
    "SoftShrink": "Softshrink",
    "Swish": "SiLU",
    "BatchNorm": "BatchNorm2d",
    "InstanceNorm": "InstanceNorm2d",
}
# What PyTorch calls arguments otherwise; the others it does not have.
_ARGUMENTS = {"axis": "dim"}


def _case(
    name: str,
    *args: Any,
    given: Any,
    label: str = "",
    twin: Callable[[Any], Any] | None = None,
    random: bool = False,
    empty: bool = True,
    **options: Any,
) -> LayerCase:
    inputs = given if isinstance(given, list) else [given]

    def same(torch: Any) -> Any:
        own = {_ARGUMENTS.get(key, key): value for key, value in options.items()}
        return getattr(torch.nn, _TORCH.get(name, name))(*args, **own)

    return LayerCase(
        name, label, args, options, tuple(inputs), twin or same, random=random, empty=empty
    )


def _parameters(torch: Any, shapes: dict[str, tuple[int, ...]], function: Any) -> Any:
    """A module of PyTorch made of a function of itself and its input."""

    class Twin(torch.nn.Module):  # type: ignore[misc]  # torch is a module that is given
        def __init__(self) -> None:
            super().__init__()
            for name, shape in shapes.items():
                self.register_parameter(name, torch.nn.Parameter(torch.zeros(shape)))

        def forward(self, *inputs: Any) -> Any:
            return function(self, *inputs)

    return Twin()


def _last(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A twin whose channels are moved first and back again."""

    def twin(torch: Any) -> Any:
        inner = make(torch)

        class Twin(type(inner)):  # type: ignore[misc]  # a class that is made here
            def forward(self, x: Any) -> Any:
                return super().forward(x.movedim(-1, 1)).movedim(1, -1)

        inner.__class__ = Twin
        return inner

    return twin


_VECTOR = (3, 4)
_LINE, _IMAGE, _BLOCK = (2, 4, 6), (2, 4, 5, 6), (1, 2, 4, 4, 5)

_PLAIN = tuple(
    _case(name, given=_VECTOR)
    for name in (
        "ReLU ReLU6 SELU SiLU Swish Mish Sigmoid LogSigmoid HardSigmoid HardSwish Tanh Tanhshrink "
        "Softsign LeakyReLU PReLU HardTanh HardShrink SoftShrink Softplus ELU CELU GELU"
    ).split()
)

_ACTIVATIONS = (
    *_PLAIN,
    _case("ReLUSquared", given=_VECTOR, twin=lambda t: lambda x: t.relu(x) ** 2),
    _case("LecunTanh", given=_VECTOR, twin=lambda t: lambda x: 1.7159 * t.tanh(2 * x / 3)),
    _case("Threshold", 0.5, -1.0, given=_VECTOR),
    _case("LeakyReLU", 0.3, given=_VECTOR, label="steep"),
    _case("PReLU", 4, 0.1, given=_VECTOR, label="channels"),
    _case("HardTanh", -0.5, 1.5, given=_VECTOR, label="limits"),
    _case("HardShrink", 0.9, given=_VECTOR, label="wide"),
    _case("SoftShrink", 0.9, given=_VECTOR, label="wide"),
    _case("Softplus", 2.0, 1.0, given=_VECTOR, label="beta"),
    _case("ELU", 0.5, given=_VECTOR, label="alpha"),
    _case("CELU", 0.5, given=_VECTOR, label="alpha"),
    _case("GELU", "tanh", given=_VECTOR, label="tanh"),
    _case("Softmax", -1, given=_VECTOR),
    _case("LogSoftmax", 0, given=_VECTOR, empty=False),
    _case("Softmin", -1, given=_VECTOR),
    _case("GLU", -1, given=_VECTOR),
    _case("SwiGLU", given=_VECTOR,
          twin=lambda t: lambda x: x[..., :2] * t.nn.functional.silu(x[..., 2:])),
    _case("GEGLU", given=_VECTOR,
          twin=lambda t: lambda x: x[..., :2] * t.nn.functional.gelu(x[..., 2:])),
)  # fmt: skip

_LINEAR = (
    _case("Linear", 4, 3, given=_VECTOR),
    _case("Linear", 4, 3, False, given=(2, 3, 4), label="plain"),
    _case("Linear", None, 3, given=_VECTOR, label="lazy",
          twin=lambda t: t.nn.Linear(4, 3)),
    _case("Dense", 3, "tanh", given=_VECTOR,
          twin=lambda t: _parameters(t, {"weight": (3, 4), "bias": (3,)},
                                     lambda self, x: t.tanh(x @ self.weight.T + self.bias))),
    _case("Bilinear", 4, 2, 3, given=[_VECTOR, (3, 2)]),
    _case("Bilinear", 4, 2, 3, False, given=[(2, 3, 4), (2, 3, 2)], label="plain"),
    _case("Identity", given=_VECTOR),
)  # fmt: skip

_EMBEDDING = (
    _case("Embedding", 6, 3, given=np.array([[1, 5, 1], [0, 3, 2]])),
    _case("Embedding", 6, 3, 1, given=np.array([[1, 5, 1], [0, 3, 2]]), label="padding"),
    _case("PositionalEmbedding", 8, 4, given=(2, 3, 4),
          twin=lambda t: _parameters(t, {"weight": (8, 4)},
                                     lambda self, x: x + self.weight[:3])),
    _case("SinusoidalEmbedding", 4, given=(2, 3, 4),
          twin=lambda t: lambda x: x + t.stack(
              [f(t.arange(3.0, dtype=t.float64)[:, None] * t.tensor([1.0, 1e-2], dtype=t.float64))
               for f in (t.sin, t.cos)], -1).reshape(3, 4)),
)  # fmt: skip

_CONV = (
    _case("Conv1d", 4, 3, 3, given=_LINE),
    _case("Conv1d", 4, 6, 2, 2, ((2, 1),), 1, 2, given=_LINE, label="groups",
          twin=lambda t: _parameters(
              t, {"weight": (6, 2, 2), "bias": (6,)},
              lambda self, x: t.nn.functional.conv1d(
                  t.nn.functional.pad(x, (2, 1)), self.weight, self.bias, 2, groups=2))),
    _case("Conv1d", 4, 3, 3, padding="same", padding_mode="circular", dilation=2, given=_LINE,
          label="same"),
    _case("Conv1d", 4, 3, 3, padding=2, padding_mode="replicate", given=(4, 6), label="alone",
          empty=False),
    _case("Conv2d", 4, 3, 3, stride=(1, 2), padding=1, bias=False, given=_IMAGE),
    _case("Conv2d", 4, 3, (3, 2), padding=(2, 1), padding_mode="reflect", given=_IMAGE,
          label="reflect"),
    _case("Conv2d", None, 3, 3, padding="valid", given=_IMAGE, label="lazy",
          twin=lambda t: t.nn.Conv2d(4, 3, 3)),
    _case("Conv2d", 6, 3, 3, padding=1, given=(2, 4, 5, 6), data_format="channels_last",
          label="last", twin=_last(lambda t: t.nn.Conv2d(6, 3, 3, padding=1))),
    _case("Conv2d", 6, 3, 3, padding=1, given=(2, 4, 5, 6), data_format="channels_last",
          padding_mode="circular", label="last-circular",
          twin=_last(lambda t: t.nn.Conv2d(6, 3, 3, padding=1, padding_mode="circular"))),
    _case("Conv3d", 2, 4, 2, groups=2, given=_BLOCK),
    _case("ConvTranspose1d", 4, 3, 3, 2, 1, 1, given=_LINE),
    _case("ConvTranspose1d", None, 6, 3, groups=2, given=_LINE, label="lazy",
          twin=lambda t: t.nn.ConvTranspose1d(4, 6, 3, groups=2)),
    _case("ConvTranspose2d", 4, 2, (3, 2), (2, 1), dilation=2, bias=False, given=_IMAGE),
    _case("ConvTranspose3d", 2, 2, 2, 2, given=_BLOCK),
)  # fmt: skip

_POOLS = (
    _case("MaxPool1d", 2, given=_LINE),
    _case("MaxPool2d", 3, 2, 1, ceil_mode=True, given=_IMAGE),
    _case("MaxPool2d", 2, given=(2, 5, 6, 4), data_format="channels_last", label="last",
          twin=_last(lambda t: t.nn.MaxPool2d(2))),
    _case("MaxPool3d", 2, 1, dilation=2, given=_BLOCK),
    _case("AvgPool1d", 3, 1, 1, count_include_pad=False, given=_LINE),
    _case("AvgPool2d", (2, 3), padding=(1, 0), given=_IMAGE),
    _case("AvgPool3d", 2, given=_BLOCK),
    *(
        _case(f"Adaptive{kind}Pool{axes}d", size, given=given)
        for kind in ("Avg", "Max")
        for axes, size, given in ((1, 4, _LINE), (2, (3, None), _IMAGE), (3, 2, _BLOCK))
    ),
    _case("GlobalAvgPool", given=_IMAGE, twin=lambda t: lambda x: x.mean((2, 3))),
    _case("GlobalMaxPool", True, given=_IMAGE,
          twin=lambda t: lambda x: x.amax((2, 3), keepdim=True)),
)  # fmt: skip

_NORMS = (
    _case("LayerNorm", 4, given=_VECTOR),
    _case("LayerNorm", (5, 6), 1e-3, bias=False, given=_IMAGE, label="axes"),
    _case("LayerNorm", None, elementwise_affine=False, given=_VECTOR, label="lazy",
          twin=lambda t: t.nn.LayerNorm(4, elementwise_affine=False)),
    _case("RMSNorm", 4, given=_VECTOR),
    _case("RMSNorm", (5, 6), 1e-3, given=_IMAGE, label="axes"),
    _case("RMSNorm", 4, 1e-3, False, given=_VECTOR, label="plain"),
    _case("GroupNorm", 2, 4, given=_IMAGE),
    _case("GroupNorm", 2, 4, affine=False, given=_VECTOR, label="plain"),
    _case("BatchNorm", 4, given=_IMAGE, empty=False),
    _case("BatchNorm1d", 4, 1e-3, 0.3, given=_VECTOR, empty=False),
    _case("BatchNorm1d", 4, momentum=None, given=_LINE, label="mean", empty=False),
    _case("BatchNorm2d", 4, affine=False, track_running_stats=False, given=_IMAGE, label="plain",
          empty=False),
    _case("BatchNorm2d", None, given=_IMAGE, label="lazy", twin=lambda t: t.nn.BatchNorm2d(4),
          empty=False),
    _case("BatchNorm2d", 6, given=_IMAGE, data_format="channels_last", label="last",
          twin=_last(lambda t: t.nn.BatchNorm2d(6)), empty=False),
    _case("BatchNorm3d", 2, given=_BLOCK, empty=False),
    _case("InstanceNorm", 4, given=_IMAGE),
    _case("InstanceNorm1d", 4, affine=True, given=_LINE),
    _case("InstanceNorm1d", 4, given=(4, 6), label="alone", empty=False),
    _case("InstanceNorm2d", 4, affine=True, track_running_stats=True, given=_IMAGE, empty=False),
    _case("InstanceNorm3d", 2, given=_BLOCK),
)  # fmt: skip

_DROPOUT = (
    _case("Dropout", 0.4, given=_VECTOR, random=True),
    _case("AlphaDropout", 0.4, given=_VECTOR, random=True),
    _case("Dropout1d", 0.4, given=_LINE, random=True),
    _case("Dropout2d", 0.4, given=_IMAGE, random=True),
    _case("Dropout3d", 0.4, given=_BLOCK, random=True),
    _case("DropPath", 0.4, given=_VECTOR, random=True, twin=lambda t: lambda x: x),
)

_ARRANGING = (
    _case("Flatten", given=_IMAGE),
    _case("Flatten", 0, 1, given=_IMAGE, label="front"),
    _case("Unflatten", 1, (2, 2), given=_IMAGE),
    _case("Lambda", ops.square, given=_VECTOR, twin=lambda t: lambda x: x * x),
    _case("Pad", 1, given=_LINE, twin=lambda t: t.nn.ZeroPad1d(1)),
    _case("Pad", ((1, 0), (2, 1)), "reflect", given=_IMAGE, label="reflect",
          twin=lambda t: t.nn.ReflectionPad2d((2, 1, 1, 0))),
    _case("Pad", (2, 1), "constant", 0.5, given=_IMAGE, data_format="channels_last", label="last",
          twin=lambda t: lambda x: t.nn.functional.pad(x, (0, 0, 2, 1, 2, 1), value=0.5)),
    _case("PixelShuffle", 2, given=_IMAGE),
    _case("PixelUnshuffle", 2, given=(1, 2, 4, 6)),
    _case("Resize", scale=2, given=_LINE, twin=lambda t: t.nn.Upsample(scale_factor=2)),
    _case("Resize", (3, 8), method="bilinear", align_corners=True, given=_IMAGE, label="corners",
          twin=lambda t: t.nn.Upsample((3, 8), mode="bilinear", align_corners=True)),
)  # fmt: skip

CASES: tuple[LayerCase, ...] = (
    *_ACTIVATIONS,
    *_LINEAR,
    *_EMBEDDING,
    *_CONV,
    *_POOLS,
    *_NORMS,
    *_DROPOUT,
    *_ARRANGING,
)
