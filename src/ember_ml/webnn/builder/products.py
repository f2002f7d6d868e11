"""Products of matrices."""

from __future__ import annotations

from ember_ml.webnn.builder.base import BuilderBase, Options
from ember_ml.webnn.numbers import cast_number
from ember_ml.webnn.operand import MLOperand
from ember_ml.webnn.shapes import broadcast, broadcasts_to

__all__ = ["Products"]


class Products(BuilderBase):
    """gemm and matmul."""

    def gemm(
        self,
        a: MLOperand,
        b: MLOperand,
        options: Options = None,
        *,
        c: MLOperand | None = None,
        alpha: float = 1.0,
        beta: float = 1.0,
        a_transpose: bool = False,
        b_transpose: bool = False,
        label: str = "",
    ) -> MLOperand:
        """alpha * a @ b + beta * c, where a and b may be transposed first.

        (m, k), (k, n) -> (m, n); c is broadcast to that.
        """
        call = self._call(
            "gemm",
            options,
            c=c,
            alpha=alpha,
            beta=beta,
            a_transpose=a_transpose,
            b_transpose=b_transpose,
            label=label,
        )
        left, right = call.operand("a", a), call.operand("b", b)
        call.same_type("b", right, left)
        factor = cast_number(call.number("alpha"), left.data_type)
        weight = cast_number(call.number("beta"), left.data_type)
        flip_a, flip_b = bool(call["a_transpose"]), bool(call["b_transpose"])
        rows, inner = left.shape[::-1] if flip_a else left.shape
        other, columns = right.shape[::-1] if flip_b else right.shape
        if inner != other:
            raise call.fault(
                f"a of {list(left.shape)}{' transposed' * flip_a} and b of "
                f"{list(right.shape)}{' transposed' * flip_b} do not multiply: "
                f"{inner} columns meet {other} rows"
            )
        added = call.optional("c")
        if added is not None:
            call.same_type("c", added, left)
            if not broadcasts_to(added.shape, (rows, columns)):
                raise call.fault(
                    f"c of {list(added.shape)} is not broadcastable to {[rows, columns]}"
                )
        value = call.node(
            "Gemm",
            [left, right, added],
            left.data_type,
            [rows, columns],
            alpha=float(factor),
            beta=float(weight),
            transA=int(flip_a),
            transB=int(flip_b),
        )
        return call.result(value, left.data_type, [rows, columns])

    def matmul(
        self, a: MLOperand, b: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """The product of matrices.

        (..., m, k), (..., k, n) -> (..., m, n); the axes before are broadcast.
        """
        call = self._call("matmul", options, label=label)
        left, right = call.operand("a", a), call.operand("b", b)
        call.same_type("b", right, left)
        if left.shape[-1] != right.shape[-2]:
            raise call.fault(
                f"a of {list(left.shape)} and b of {list(right.shape)} do not multiply: "
                f"{left.shape[-1]} columns meet {right.shape[-2]} rows"
            )
        batches = broadcast(left.shape[:-2], right.shape[:-2])
        if batches is None:
            raise call.fault(
                f"a of {list(left.shape)} and b of {list(right.shape)} do not multiply: "
                "the axes before the last two are not broadcastable"
            )
        shape = [*batches, left.shape[-2], right.shape[-1]]
        return call.result(
            call.node("MatMul", [left, right], left.data_type, shape), left.data_type, shape
        )
