"""Tensors in files: safetensors, whole or in shards; NumPy's and PyTorch's formats beside."""

from ember_ml.io.loading import TensorFile, TensorInfo, load, open_file
from ember_ml.io.objects import Savable, savable
from ember_ml.io.saving import save
from ember_ml.tensor.pickling import unpickle_to

__all__ = [
    "Savable",
    "TensorFile",
    "TensorInfo",
    "load",
    "open_file",
    "savable",
    "save",
    "unpickle_to",
]
