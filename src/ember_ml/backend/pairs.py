"""The ops of two operands, by number.

They are what tensors do most, so their kernels lie in a list (`Spec.pairs`): a place in it is found
in a fraction of the time that a name in a dict takes.

This is a file of the compiled core (ember_ml/compiled.py): there the numbers are constants.
"""

from __future__ import annotations

from typing import Final

__all__ = ["NAMES", "NUMBERS"]  # and a constant for each number

ADD: Final = 0
SUBTRACT: Final = 1
MULTIPLY: Final = 2
DIVIDE: Final = 3
FLOOR_DIVIDE: Final = 4
REMAINDER: Final = 5
POW: Final = 6
MATMUL: Final = 7
BITWISE_AND: Final = 8
BITWISE_OR: Final = 9
BITWISE_XOR: Final = 10
BITWISE_LEFT_SHIFT: Final = 11
BITWISE_RIGHT_SHIFT: Final = 12
EQUAL: Final = 13
NOT_EQUAL: Final = 14
LESS: Final = 15
LESS_EQUAL: Final = 16
GREATER: Final = 17
GREATER_EQUAL: Final = 18
MAXIMUM: Final = 19
MINIMUM: Final = 20
FMAX: Final = 21
FMIN: Final = 22
ATAN2: Final = 23
COPYSIGN: Final = 24
HYPOT: Final = 25
LOGADDEXP: Final = 26
LOGICAL_AND: Final = 27
LOGICAL_OR: Final = 28
LOGICAL_XOR: Final = 29
NEXTAFTER: Final = 30

# In the order of the numbers, which a test compares.
NAMES: Final[list[str]] = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "floor_divide",
    "remainder",
    "pow",
    "matmul",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "atan2",
    "copysign",
    "hypot",
    "logaddexp",
    "logical_and",
    "logical_or",
    "logical_xor",
    "nextafter",
]
NUMBERS: Final[dict[str, int]] = {name: number for number, name in enumerate(NAMES)}
