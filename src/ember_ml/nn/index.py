"""Which module of `nn` has which name: `nn.Linear` imports no more than it needs."""

from __future__ import annotations

from typing import Final

__all__ = ["NAMES", "PACKAGES"]

_BY_MODULE: Final = {
    "module": "Module watching",
    "parameter": "Buffer Parameter",
    "model": "Model",
    "modules.activation_layers": (
        "CELU ELU GEGLU GELU GLU HardShrink HardSigmoid HardSwish HardTanh LeakyReLU LecunTanh "
        "LogSigmoid LogSoftmax Mish PReLU ReLU ReLU6 ReLUSquared SELU SiLU Sigmoid SoftShrink "
        "Softmax Softmin Softplus Softsign SwiGLU Swish Tanh Tanhshrink Threshold"
    ),
    "modules.arranging": "Flatten Lambda Pad PixelShuffle PixelUnshuffle Resize Unflatten",
    "modules.attention": "KVCache MultiHeadAttention",
    "modules.batch_normalization": (
        "BatchNorm BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm InstanceNorm1d "
        "InstanceNorm2d InstanceNorm3d"
    ),
    "modules.containers": "ModuleDict ModuleList Residual Sequential",
    "modules.convolution": ("Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d"),
    "modules.dropout": "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d DropPath",
    "modules.embedding": "Embedding PositionalEmbedding SinusoidalEmbedding",
    "modules.linear": "Bilinear Dense Identity Linear",
    "modules.liquid": "CfC CfCCell LTC LTCCell",
    "modules.normalization": "GroupNorm LayerNorm RMSNorm",
    "modules.pooling": (
        "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d "
        "AdaptiveMaxPool2d AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d GlobalAvgPool "
        "GlobalMaxPool MaxPool1d MaxPool2d MaxPool3d"
    ),
    "modules.recurrent": "GRU GRUCell LSTM LSTMCell RNN RNNCell",
}
NAMES: Final = {name: module for module, names in _BY_MODULE.items() for name in names.split()}
# Packages that users reach as `nn.layers` and so on.
PACKAGES: Final = frozenset(("features", "initializers", "layers", "losses", "modules", "wirings"))
