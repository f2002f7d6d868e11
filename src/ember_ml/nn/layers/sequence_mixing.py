"""Layers that mix the tokens of a sequence."""

from ember_ml.nn.layers.attending import Attention, LinearAttention
from ember_ml.nn.layers.long_convolution import LongConvolution
from ember_ml.nn.layers.recurring import RNNMixer
from ember_ml.nn.layers.state_space import StateSpaceMixer

__all__ = ["Attention", "LinearAttention", "LongConvolution", "RNNMixer", "StateSpaceMixer"]
