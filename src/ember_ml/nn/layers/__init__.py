"""Layers by what they mix: channels of each token, or tokens; and blocks of both.

from ember_ml.nn.layers import base, blocks, channel_mixing, sequence_mixing
"""

from ember_ml.nn.layers import base, blocks, channel_mixing, sequence_mixing
from ember_ml.nn.layers.base import *
from ember_ml.nn.layers.blocks import *
from ember_ml.nn.layers.channel_mixing import *
from ember_ml.nn.layers.sequence_mixing import *

__all__ = ["base", "blocks", "channel_mixing", "sequence_mixing"]
__all__ += base.__all__ + blocks.__all__ + channel_mixing.__all__ + sequence_mixing.__all__
