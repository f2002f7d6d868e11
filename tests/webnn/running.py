"""One call of the builder, computed."""

import numpy as np

from ember_ml.webnn import ML, MLGraphBuilder


def compute(executor, op, *arrays, constants=(), **options):
    """What an op gives for arrays; those at the places in `constants` are constants."""
    context = ML().create_context(backend=executor)
    builder = MLGraphBuilder(context)
    operands, feeds = [], {}
    for place, array in enumerate(arrays):
        if not isinstance(array, np.ndarray | np.generic):
            operands.append(array)  # an axis, a data type
            continue
        described = {"data_type": array.dtype.name, "shape": array.shape}
        if place in constants:
            operands.append(builder.constant(described, np.asarray(array)))
        else:
            operands.append(builder.input(f"x{place}", described))
            feeds[f"x{place}"] = np.asarray(array)
    result = getattr(builder, op)(*operands, **options)
    graph = builder.build({"y": result})
    inputs = {
        name: context.create_tensor(x.shape, x.data_type, writable=True)
        for name, x in graph.input_descriptors.items()
    }
    for name, tensor in inputs.items():
        context.write_tensor(tensor, feeds[name])
    output = context.create_tensor(result.shape, result.data_type, readable=True)
    context.dispatch(graph, inputs, {"y": output})
    made = context.read_tensor(output)
    assert made.shape == result.shape
    assert made.dtype.name == result.data_type
    return made
