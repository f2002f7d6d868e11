"""Liquid networks: neurons whose time constants depend on what they see."""

from ember_ml.nn.modules.liquid.cfc import *
from ember_ml.nn.modules.liquid.ltc import *
