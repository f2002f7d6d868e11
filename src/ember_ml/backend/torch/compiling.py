"""torch: a function as one flat graph of torch's operators, run as it is or by Inductor.

make_fx records the graph with tensors that have no values. What is left of it is what a program
needs: no wrappers, no checks, no record of gradients. torch.compile on the functions themselves
does not get that far: it stops at classes of ours, and at gradients taken within.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any, Final

import torch
from torch._C._functorch import peek_interpreter_stack
from torch.fx import Graph, GraphModule, Node

from ember_ml.backend.compiling import FROM_OUTSIDE, Compiler, Function, Natives, Plan
from ember_ml.backend.torch.tracing import is_fake
from ember_ml.errors import TraceError

__all__ = ["TorchCompiler"]

_ATEN: Final = torch.ops.aten
_PROXY: Final = torch._C._TorchDispatchModeKey.PROXY
# Cut off from gradients, which the graph does not record anyway.
_SAME: Final = frozenset((_ATEN.detach.default, _ATEN.alias.default, _ATEN.lift_fresh_copy.default))


class TorchCompiler(Compiler):
    """A flat graph, called without torch's record of gradients; see `record` for those."""

    traces = True
    strided = True
    # The graph itself costs nothing to make; Inductor takes ten seconds and more at first.
    compilers = ("graph", "inductor")

    def compile(self, function: Function, natives: Natives, plan: Plan) -> Function:
        from torch.fx.experimental.proxy_tensor import make_fx

        # Numbers beside tensors are kept by their specs, and have values: constants here.
        trace = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)
        # What is saved for gradients within the trace is no matter of a checkpoint around it.
        with torch.autograd.graph.saved_tensors_hooks(_itself, _itself):
            traced = trace(*map(_like, natives))
        _simplify(traced, plan.owned)
        if plan.compiler == "inductor":
            return _quiet(torch.compile(traced), natives)
        _retarget(traced.graph)
        traced.recompile()
        return _quiet(traced.forward, natives)

    def inlines(self) -> bool:
        return (
            peek_interpreter_stack() is not None  # torch.func.vmap and its like
            or torch._C._get_dispatch_mode(_PROXY) is not None
            or torch.compiler.is_compiling()
        )

    def is_complaint(self, error: BaseException) -> bool:
        name = type(error).__name__
        return name in ("DataDependentOutputException", "GuardOnDataDependentSymNode")

    def changed(self, given: Any, now: Any) -> bool:
        return now is not given or given._version > 0

    def own(self, native: Any, leaf: bool) -> Any:
        # A write stays within the graph; where none came, _simplify takes the copy away.
        made = native.clone()
        return made.requires_grad_() if leaf and not made.requires_grad else made

    def apart(self, native: Any, given: Natives) -> Any:
        if not is_fake(native):
            return native.clone()  # a constant of the graph
        mine = native.untyped_storage()._cdata
        return native.clone() if any(mine == n.untyped_storage()._cdata for n in given) else native

    def pull(self, function: Function, natives: Natives, gradients: Natives) -> list[Any]:
        create = any(n.requires_grad for n in (*natives, *gradients))
        with torch.enable_grad():
            leaves = [self.backend.gradients.alias(n) for n in natives]
            pairs = [
                (out, g)
                for out, g in zip(function(*leaves), gradients, strict=True)
                if out.requires_grad
            ]
            found: Any = torch.autograd.grad(
                [out for out, _ in pairs],
                leaves,
                [g for _, g in pairs],
                create_graph=create,
                allow_unused=True,
            )
        return [
            torch.zeros_like(leaf) if g is None else g
            for leaf, g in zip(leaves, found, strict=True)
        ]

    def record(
        self, run: Callable[[Natives], list[Any]], pull: Callable[..., list[Any]], natives: Natives
    ) -> list[Any]:
        if not torch.is_grad_enabled() or not any(n.requires_grad for n in natives):
            return run(natives)
        apply: Any = _Recorded.apply
        return list(apply(run, pull, *natives))


class _Recorded(torch.autograd.Function):
    """A compiled function with a gradient that is one, too."""

    @staticmethod
    def forward(ctx: Any, run: Any, pull: Any, *natives: Any) -> Any:
        ctx.pull = pull
        ctx.save_for_backward(*natives)
        outs = tuple(run(natives))
        ctx.mark_non_differentiable(
            *[o for o in outs if not (o.is_floating_point() or o.is_complex())]
        )
        ctx.set_materialize_grads(True)
        return outs

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        needs = tuple(ctx.needs_input_grad[2:])
        return (None, None, *ctx.pull(needs, ctx.saved_tensors, gradients))


def _itself(native: Any) -> Any:
    return native


def _like(native: Any) -> Any:
    """A tensor to trace with, in memory of its own: inputs that share some would be one."""
    made = torch.empty_strided(
        native.shape, native.stride(), dtype=native.dtype, device=native.device
    )
    return made.requires_grad_(native.requires_grad)


def _quiet(run: Callable[..., Any], natives: Natives) -> Function:
    """A graph without a record of gradients."""
    switch: Any = torch._C._set_grad_enabled
    # Conjugates that torch puts off are none in the graph.
    resolves = any(native.is_complex() for native in natives)

    def quiet(*natives: Any) -> list[Any]:
        if resolves:
            natives = tuple(native.resolve_conj().resolve_neg() for native in natives)
        if not torch.is_grad_enabled():
            return run(*natives)  # type: ignore[no-any-return]  # a list, by how it was traced
        switch(False)
        try:
            return run(*natives)  # type: ignore[no-any-return]  # as above
        finally:
            switch(True)

    return quiet


# --- The graph ----------------------------------------------------------------------------------


def _simplify(traced: GraphModule, owned: int) -> None:
    """Take away what does nothing, and copies of state that a last write makes needless."""
    graph = traced.graph
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _SAME:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for given in inputs[:owned]:
        for copy in list(given.users):
            _settle(graph, given, copy)
    graph.eliminate_dead_code()
    _require_no_writes_outside(graph)
    _separate(graph)
    graph.lint()
    traced.recompile()


def _require_no_writes_outside(graph: Graph) -> None:
    """Raise where the graph would write to a tensor that it has as a constant."""
    for node in graph.nodes:
        if node.op == "call_function" and _mutates(node) and _is_constant(node):
            raise TraceError(FROM_OUTSIDE)


def _separate(graph: Graph) -> None:
    """Copy results that are views of a constant, or one place in memory for many elements: whoever
    gets them may write to them.
    """
    *_, output = graph.nodes
    for node in output.all_input_nodes:
        value = node.meta.get("val")
        if _is_constant(node) or (isinstance(value, torch.Tensor) and 0 in value.stride()):
            with graph.inserting_before(output):
                output.replace_input_with(node, graph.call_function(_ATEN.clone.default, (node,)))


def _is_constant(node: Node) -> bool:
    """True for a tensor that the graph holds, and for views of it."""
    while node.op == "call_function" and _aliases(node) and isinstance(node.args[0], Node):
        node = node.args[0]
    return node.op == "get_attr"


def _settle(graph: Graph, given: Node, copy: Node) -> None:
    """Use an input itself for its copy, where nobody writes to it before its last use."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    sharing = _sharing(graph, copy)
    written = [n for n in sharing if n.op == "call_function" and _mutates(n)]
    if not written:
        copy.replace_all_uses_with(given)
        graph.erase_node(copy)
        return
    (first, *more) = written
    if more or first.target is not _ATEN.copy_.default or first.args[0] is not copy:
        return
    value = first.args[1]
    fits = isinstance(value, Node) and _alike(value, copy) and value not in sharing
    used = [user for node in sharing if node is not first for user in node.users]
    if fits and all(user is first or order[user] < order[first] for user in used):
        first.replace_all_uses_with(value)  # type: ignore[arg-type]  # a Node, as `fits` says
        graph.erase_node(first)
        copy.replace_all_uses_with(given)
        graph.erase_node(copy)


def _sharing(graph: Graph, root: Node) -> list[Node]:
    """The nodes whose tensors lie in the memory of that of another."""
    mine = _memory(root)
    return [node for node in graph.nodes if _memory(node) == mine]


def _memory(node: Node) -> int | None:
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def _alike(a: Node, b: Node) -> bool:
    x, y = a.meta.get("val"), b.meta.get("val")
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return False
    return x.shape == y.shape and x.dtype == y.dtype and x.stride() == y.stride()


def _mutates(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _aliases(node: Node) -> bool:
    """True where an operator gives its first operand, or a view or a part of it."""
    if node.target is getitem:
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(out.alias_info is not None for out in schema.returns)


def _retarget(graph: Graph) -> None:
    """Call torch's own functions where they are the operators: half the time of a call."""
    for node in graph.nodes:
        target: Any = node.target
        if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
            continue
        if target.namespace != "aten" or node.kwargs:
            continue
        name = target._schema.name.partition("::")[2]
        if name in _PLAIN:
            node.target = getattr(torch, name)
        elif target is torch.ops.aten.view.default:
            # Some operators, such as the gradient of elu, lay results out otherwise than they say
            # while they are traced, and then there is no such view.
            node.target = torch.reshape


# Operators whose function takes the same arguments in the same order, whatever these are.
_PLAIN: Final = frozenset(
    """abs add addmm amax amin argmax bmm cat clamp clone cos div eq exp expm1 floor ge gt le
    log log1p logical_and logical_not lt maximum mean minimum mm mul ne neg permute pow reciprocal
    relu rsqrt sigmoid sign sin sqrt sub sum t tanh transpose unsqueeze where zeros_like""".split()
)
