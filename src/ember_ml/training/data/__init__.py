"""Data for training: datasets, and loaders that make batches of them."""

from ember_ml.training.data.datasets import Dataset, TensorDataset, random_split
from ember_ml.training.data.loader import DataLoader

__all__ = ["DataLoader", "Dataset", "TensorDataset", "random_split"]
