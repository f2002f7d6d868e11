"""One call of the builder, with arrays wherever it takes operands."""

import numpy as np

from ember_ml.webnn import ML, MLGraphBuilder, MLOperand


def compute(executor, op, *given, options=None, constants=(), **named):
    """What an op gives for arrays: an array, or a list of them where it gives several.

    Arrays at the places in `constants` are constants of the graph.
    """
    context = ML().create_context(backend=executor)
    builder = MLGraphBuilder(context)
    feeds = {}

    def operand(x):
        if isinstance(x, list) and x and isinstance(x[0], np.ndarray):
            return [operand(one) for one in x]
        if not isinstance(x, np.ndarray):
            return x
        name = f"x{len(feeds)}"
        feeds[name] = x
        return builder.input(name, {"data_type": x.dtype.name, "shape": x.shape})

    taken = [
        builder.constant({"data_type": x.dtype.name, "shape": x.shape}, x)
        if place in constants
        else operand(x)
        for place, x in enumerate(given)
    ]
    if options is not None:
        taken.append({key: operand(x) for key, x in options.items()})
    made = getattr(builder, op)(*taken, **{key: operand(x) for key, x in named.items()})
    results = [made] if isinstance(made, MLOperand) else made
    graph = builder.build({f"y{i}": x for i, x in enumerate(results)})
    inputs = {
        name: context.create_tensor(x.shape, x.data_type, writable=True)
        for name, x in graph.input_descriptors.items()
    }
    outputs = {
        f"y{i}": context.create_tensor(x.shape, x.data_type, readable=True)
        for i, x in enumerate(results)
    }
    for name, tensor in inputs.items():
        context.write_tensor(tensor, feeds[name])
    context.dispatch(graph, inputs, outputs)
    read = [context.read_tensor(tensor) for tensor in outputs.values()]
    return read[0] if isinstance(made, MLOperand) else read
