"""Kernels where torch misses a value of the standard or an error, by kind of dtype."""

from __future__ import annotations

from typing import Any, Final

import torch

from ember_ml.backend.contract import Kernel
from ember_ml.backend.portable.arithmetic import sinc_slope
from ember_ml.backend.torch.tracing import readable
from ember_ml.errors import DomainError

__all__ = ["BY_KIND", "cbrt"]

Tensor = torch.Tensor


# --- Real numbers -----------------------------------------------------------------------------


def sign(x: Tensor) -> Tensor:
    return torch.where(torch.isnan(x), x, torch.sign(x))  # torch gives 0 for NaN


def floor_divide(x: Tensor, y: Tensor) -> Tensor:
    # torch gives NaN for an infinite dividend and -1 for an infinite divisor of the other sign,
    # where the standard keeps the quotient.
    a, b = x.detach(), y.detach()
    infinite = torch.isinf(a) | torch.isinf(b)
    out = torch.where(infinite, torch.floor(torch.divide(a, b)), torch.floor_divide(a, b))
    # It has no derivative, which should be zero: that of what is never chosen.
    return torch.where(_TRUE, out, x + y) if x.requires_grad or y.requires_grad else out


def remainder(x: Tensor, y: Tensor) -> Any:
    if x.requires_grad or y.requires_grad:
        return _sloped_remainder(x, y)
    return _remainder(x, y)


def _remainder(x: Tensor, y: Tensor) -> Tensor:
    out = torch.remainder(x, y)
    return torch.where(out == 0, torch.copysign(out, y), out)  # zeros have the divisor's sign


class _RemainderOf(torch.autograd.Function):
    """Where the sign of a zero was put right, torch would stop the gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> Any:
        return _remainder(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (g,), (x, y) = grad_outputs, ctx.saved_tensors
        return g.sum_to_size(x.shape), (-g * floor_divide(x, y)).sum_to_size(y.shape)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        (dx, dy), (x, y) = grad_inputs, ctx.saved_tensors
        out = torch.zeros_like(x) if dx is None else dx
        return out + 0 * y if dy is None else out - dy * floor_divide(x, y)


_sloped_remainder: Final[Kernel] = _RemainderOf.apply


def with_slope(function: Kernel, slope: Kernel) -> Kernel:
    """A function of one operand, whose derivative is a function of the operand and the result."""

    class Sloped(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*inputs: Any) -> Any:
            return function(*inputs)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.save_for_backward(*inputs, output)
            ctx.save_for_forward(*inputs, output)

        @staticmethod
        def backward(ctx: Any, *grad_outputs: Any) -> Any:
            return grad_outputs[0] * slope(*ctx.saved_tensors)

        @staticmethod
        def jvp(ctx: Any, *grad_inputs: Any) -> Any:
            return grad_inputs[0] * slope(*ctx.saved_tensors)

    sloped: Kernel = Sloped.apply
    return lambda x: sloped(x) if x.requires_grad else function(x)


def cbrt(portable: Kernel) -> Kernel:
    """The cube root of an engine without one, with its slopes at zero and infinity."""
    return with_slope(portable, lambda x, y: 1 / (3 * torch.square(y)))


# torch's own derivative is a difference of nearly equal terms near zero.
sinc: Final = with_slope(torch.sinc, lambda x, y: sinc_slope(torch.where, torch.cos, x, y))

_TRUE: Final = torch.ones((), dtype=torch.bool)


def hypot(x: Tensor, y: Tensor) -> Tensor:
    if not (x.requires_grad or y.requires_grad):
        return torch.hypot(x, y)
    # In the origin torch divides zero by zero; there, the slope is zero, as of any norm.
    origin = (x == 0) & (y == 0)
    return torch.where(origin, 0.0, torch.hypot(torch.where(origin, 1.0, x), y))


def logaddexp(x: Tensor, y: Tensor) -> Tensor:
    if not (x.requires_grad or y.requires_grad):
        return torch.logaddexp(x, y)
    # Equal infinities, such as two chances of zero, share the gradient; torch subtracts them.
    equal = (x == y) & torch.isinf(x)
    inner = torch.logaddexp(torch.where(equal, 0.0, x), torch.where(equal, 0.0, y))
    return torch.where(equal, x * 0.5 + y * 0.5, inner)


def _no_imag(x: Tensor) -> Tensor:
    zeros = torch.zeros_like(x)
    return torch.where(_TRUE, zeros, x) if x.requires_grad else zeros


# --- Integers ---------------------------------------------------------------------------------


def pow(x: Tensor, y: Tensor) -> Tensor:
    if readable(y) and bool((y < 0).any()):
        raise DomainError("ops.pow takes no negative integer exponents for integers; cast to float")
    return torch.pow(x, y)


def matmul(x: Tensor, y: Tensor) -> Tensor:
    if x.is_cpu:
        return torch.matmul(x, y)
    return torch.matmul(x.cpu(), y.cpu()).to(x.device)  # accelerators multiply floats only


# --- Complex numbers --------------------------------------------------------------------------


def _by_parts(function: Kernel) -> Kernel:
    """A kernel that treats real and imaginary parts alike, each by itself."""

    def kernel(*args: Tensor) -> Tensor:
        parts = [torch.view_as_real(x.resolve_conj()) for x in args]
        return torch.view_as_complex(function(*parts))

    return kernel


def _real(x: Tensor) -> Tensor:
    return torch.real(x).clone()  # a tensor of its own, as on every backend


def _imag(x: Tensor) -> Tensor:
    return torch.imag(x).clone()


def _sign(x: Tensor) -> Tensor:
    # torch divides infinity by infinity; the direction of one infinite part is known.
    across, up = torch.isinf(x.real), torch.isinf(x.imag)
    axis = torch.complex(
        torch.where(across, torch.sign(x.real), 0.0), torch.where(across, 0.0, torch.sign(x.imag))
    )
    return torch.where(across ^ up, axis, torch.sgn(x))


def _pow(x: Tensor, y: Tensor) -> Tensor:
    # torch goes through the logarithm, which zero does not have.
    zero = torch.zeros((), dtype=x.dtype, device=x.device)
    of_zero = torch.where(y.real > 0, zero, complex("nan+nanj"))
    out = torch.where(x == 0, of_zero, torch.pow(x, y))
    return torch.where(y == 0, torch.ones_like(zero), out)


def _acos(x: Tensor) -> Tensor:
    # torch loses the sign of an imaginary zero, which tells the side of the branch cut.
    out = torch.acos(x)
    return torch.complex(out.real, torch.copysign(out.imag, -x.imag))


def _log1p(x: Tensor) -> Tensor:
    # An infinite part makes the length infinite, also beside a NaN, and torch loses the angle.
    infinite = torch.isinf(x.real) | torch.isinf(x.imag)
    limit = torch.complex(torch.full_like(x.real, torch.inf), torch.atan2(x.imag, x.real + 1))
    return torch.where(infinite, limit, torch.log1p(x))


def _tanh(x: Tensor) -> Tensor:
    # At infinity the sign of the imaginary zero is that of the angle, not of sin(2 * angle).
    one = torch.ones_like(x.real)
    limit = torch.complex(torch.copysign(one, x.real), torch.copysign(0 * one, x.imag))
    return torch.where(torch.isinf(x.real) & torch.isfinite(x.imag), limit, torch.tanh(x))


def _expm1(x: Tensor) -> Tensor:
    """exp(x) - 1 with the standard's values where the angle is zero or does not exist."""
    across, angle = x.real, x.imag
    out = torch.expm1(x)
    real, imag = out.real, out.imag
    on_axis = angle == 0
    real = torch.where(on_axis, torch.expm1(across) + 0.0, real)  # no -0.0 there
    imag = torch.where(on_axis, angle, imag)
    lost = torch.isinf(across) & ~torch.isfinite(angle)
    real = torch.where(lost, torch.expm1(across), real)
    imag = torch.where(lost, torch.where(across > 0, torch.nan, 0.0), imag)
    return torch.complex(real, imag)


# --- Products of several operands ----------------------------------------------------------


def contract(arrays: list[Tensor], terms: Any, output: Any) -> Any:
    pairs = (part for pair in zip(arrays, terms, strict=True) for part in pair)
    return torch.einsum(*pairs, output)


# --- By kind ----------------------------------------------------------------------------------

_EXACT: Final[dict[str, Kernel]] = {
    "conj": torch.clone,
    "real": torch.clone,
    "imag": _no_imag,
}
_INTEGERS: Final[dict[str, Kernel]] = {**_EXACT, "pow": pow, "matmul": matmul}

BY_KIND: Final[dict[str, dict[str, Kernel]]] = {
    "bool": {},
    "signed integer": _INTEGERS,
    "unsigned integer": _INTEGERS,
    "real floating": {
        **_EXACT,
        "sign": sign,
        "floor_divide": floor_divide,
        "remainder": remainder,
        "hypot": hypot,
        "logaddexp": logaddexp,
        "sinc": sinc,
        "contract": contract,
    },
    "complex floating": {
        # torch scales the second operand by 1 + 0j first, which makes NaN of infinities.
        "add": _by_parts(torch.add),
        "subtract": _by_parts(torch.subtract),
        "negative": _by_parts(torch.negative),
        "round": _by_parts(torch.round),
        # torch.conj only notes the sign, which other engines cannot read.
        "conj": torch.conj_physical,
        "real": _real,
        "imag": _imag,
        "sign": _sign,
        "pow": _pow,
        "acos": _acos,
        "log1p": _log1p,
        "tanh": _tanh,
        "expm1": _expm1,
        "contract": contract,
    },
}
