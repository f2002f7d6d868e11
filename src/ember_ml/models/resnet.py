"""ResNet-18: residual blocks of convolutions, with torchvision's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ember_ml import nn, ops
from ember_ml.errors import DomainError
from ember_ml.models.base import ConfigModel
from ember_ml.nn.initializers import HeNormal
from ember_ml.registry import Config, register
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["ResNet", "ResNetConfig"]


@register("models/resnet18")
@dataclass(frozen=True, kw_only=True)
class ResNetConfig(Config):
    """ResNet-18 for images; other counts of blocks give its siblings."""

    in_channels: int = 3
    num_classes: int = 1000
    # Basic blocks in each of the four stages: (3, 4, 6, 3) is ResNet-34.
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    # Channels of the first stage; each later one has twice as many.
    width: int = 64
    # "imagenet": 7 by 7 with stride 2, and pooling; "small": 3 by 3, for images of 32 by 32.
    stem: str = "imagenet"

    def build(self) -> ResNet:
        """The model, on the current backend."""
        return ResNet(self)


def _convolution(a: int, b: int, size: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(
        a,
        b,
        size,
        stride=stride,
        padding=size // 2,
        bias=False,
        weight_init=HeNormal(mode="fan_out"),
    )


class _Block(nn.Module):
    def __init__(self, a: int, b: int, stride: int) -> None:
        self.conv1 = _convolution(a, b, 3, stride)
        self.bn1 = nn.BatchNorm2d(b)
        self.conv2 = _convolution(b, b, 3, 1)
        self.bn2 = nn.BatchNorm2d(b)
        self.downsample = None
        if stride != 1 or a != b:
            self.downsample = nn.Sequential(_convolution(a, b, 1, stride), nn.BatchNorm2d(b))

    def forward(self, x: Tensor) -> Tensor:
        y = ops.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return ops.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(ConfigModel[ResNetConfig]):
    """A stem, four stages of basic blocks, the mean over the image and a linear layer.

    Shapes: x `(batch, in_channels, height, width)`, the result `(batch, num_classes)`. Parameters
    have the names of torchvision's `resnet18`, whose state dicts load.

    >>> from ember_ml.models import ResNet
    >>> ResNet(width=4, num_classes=5, stem="small").eval()(ops.ones((1, 3, 8, 8))).shape
    (1, 5)
    """

    config_class = ResNetConfig

    def __init__(self, config: ResNetConfig | None = None, /, **options: Any) -> None:
        super().__init__(config, **options)
        c = self.config
        if c.stem not in ("imagenet", "small"):
            raise DomainError(f"ResNet got stem={c.stem!r}; it is 'imagenet' or 'small'")
        if len(c.blocks) != 4 or min(c.blocks) < 1:
            raise DomainError(f"ResNet got blocks={c.blocks}; it has four stages of one or more")
        large = c.stem == "imagenet"
        self.conv1 = _convolution(c.in_channels, c.width, 7 if large else 3, 2 if large else 1)
        self.bn1 = nn.BatchNorm2d(c.width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if large else None
        sizes = [c.width * 2**stage for stage in range(4)]
        self.layer1 = _stage(c.width, sizes[0], c.blocks[0], 1)
        self.layer2 = _stage(sizes[0], sizes[1], c.blocks[1], 2)
        self.layer3 = _stage(sizes[1], sizes[2], c.blocks[2], 2)
        self.layer4 = _stage(sizes[2], sizes[3], c.blocks[3], 2)
        self.fc = nn.Linear(sizes[3], c.num_classes)

    def features(self, x: TensorLike) -> Tensor:
        """What the last stage gives, averaged over the image: `(batch, channels)`."""
        y = ops.relu(self.bn1(self.conv1(x)))
        if self.maxpool is not None:
            y = self.maxpool(y)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            y = stage(y)
        return ops.mean(y, axis=(2, 3))

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        y: Tensor = self.fc(self.features(x))
        return y


def _stage(a: int, b: int, count: int, stride: int) -> nn.Sequential:
    first = _Block(a, b, stride)
    return nn.Sequential(first, *(_Block(b, b, 1) for _ in range(count - 1)))
