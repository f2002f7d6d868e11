"""One order for everything a context does: several threads, asyncio, and both at once."""

import asyncio
import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ember_ml.webnn import ML, InvalidStateError, MLGraphBuilder, MLTypeError, OperationError
from ember_ml.webnn.timeline import Timeline


@pytest.fixture
def context():
    with ML().create_context() as made:
        yield made


def adding(context, shape=(1,), data_type="float32"):
    """y = a + b."""
    builder = MLGraphBuilder(context)
    descriptor = {"data_type": data_type, "shape": shape}
    a, b = builder.input("a", descriptor), builder.input("b", descriptor)
    return builder.build({"y": builder.add(a, b)})


def heavy(context, size=700):
    """Some tenths of a second of matrix products."""
    builder = MLGraphBuilder(context)
    x = y = builder.input("x", {"data_type": "float32", "shape": [size, size]})
    for _ in range(12):
        y = builder.matmul(y, x)
    graph = builder.build({"y": y})
    tensors = [context.create_tensor([size, size], "float32") for _ in range(2)]
    return graph, {"x": tensors[0]}, {"y": tensors[1]}


# --- The timeline itself ------------------------------------------------------------------------


def test_calls_stand_in_line():
    timeline, done, gate = Timeline(), [], threading.Event()
    timeline.submit(lambda: (gate.wait(10), done.append("queued first")))
    timeline.submit(lambda: done.append("queued second"))
    threading.Timer(0.05, gate.set).start()
    timeline.run(lambda: done.append("called third"))
    assert done == ["queued first", "queued second", "called third"]


def test_a_call_runs_in_its_own_thread_when_nothing_is_queued():
    timeline = Timeline()
    assert timeline.run(threading.get_ident) == threading.get_ident()
    assert timeline._worker is None
    assert timeline.submit(threading.get_ident).result() != threading.get_ident()


def test_a_call_that_is_never_awaited_is_told_of(context):
    tensor = context.create_host_tensor([1], "float32")
    with pytest.warns(RuntimeWarning, match="never awaited, and no event loop ran"):
        context.write_tensor_async(tensor, [1.0])
    assert context.read_tensor(tensor).tolist() == [0.0]


def test_what_was_read_by_await_is_let_go(context):
    async def read():
        tensor = context.create_host_tensor([1], "float32")
        await context.read_tensor_async(tensor)
        return weakref.ref(tensor)

    async def main():
        return [await read() for _ in range(4)]

    gc.disable()  # no cycle is left for it
    try:
        *before, _ = asyncio.run(main())  # the thread may still be about to drop the last
        assert [one() for one in before] == [None] * 3
    finally:
        gc.enable()


def test_what_is_destroyed_while_it_is_bound_is_bound_no_more(context, monkeypatch):
    graph = adding(context)
    tensors = [context.create_tensor([1], "float32") for _ in range(3)]
    compiled = graph._compiled
    prepare, destroyers = compiled.prepare, []

    def slowly(inputs, outputs):
        for one in (tensors[0], graph):
            destroyers.append(threading.Thread(target=one.destroy))
            destroyers[-1].start()
        time.sleep(0.05)
        return prepare(inputs, outputs)

    monkeypatch.setattr(compiled, "prepare", slowly)
    named = {"a": tensors[0], "b": tensors[1]}, {"y": tensors[2]}
    context.dispatch(graph, *named)  # which came first
    for destroyer in destroyers:
        destroyer.join()
    assert not graph._prepared
    with pytest.raises(InvalidStateError, match="the graph is destroyed"):
        context.dispatch(graph, *named)


def test_what_is_destroyed_while_it_is_checked_is_not_touched(context, monkeypatch):
    class Meddling(Timeline):
        """Another thread, which destroys a tensor between the check of a call and its work."""

        def run(self, work):
            tensor.destroy()
            return super().run(work)

    tensor = context.create_host_tensor([2], "float32")
    monkeypatch.setattr(context, "_timeline", Meddling())
    context.write_tensor(tensor, [1, 2])  # which came first
    with pytest.raises(InvalidStateError, match="the tensor is destroyed"):
        context.read_tensor(tensor)

    class Late(list):
        """Data during whose conversion the tensor is destroyed."""

        def __len__(self):
            other.destroy()
            return super().__len__()

    monkeypatch.undo()
    other = context.create_host_tensor([2], "float32")
    context.write_tensor(other, Late([1, 2]))
    with pytest.raises(InvalidStateError, match="the tensor is destroyed"):
        context.write_tensor(other, [1, 2])


def test_what_joins_a_lost_context_is_destroyed(context, monkeypatch):
    allocate, made = context._engine.allocate, []

    def late(descriptor):
        context.destroy()
        made.append(allocate(descriptor))
        return made[-1]

    monkeypatch.setattr(context._engine, "allocate", late)
    with pytest.raises(InvalidStateError, match="create_tensor: the context is lost"):
        context.create_tensor([1], "float32")
    assert made


def test_errors_go_to_who_called():
    timeline = Timeline()

    def fail():
        raise ValueError("of this call")

    failing = timeline.submit(fail)
    assert timeline.run(lambda: 1) == 1
    with pytest.raises(ValueError, match="of this call"):
        failing.result()
    with pytest.raises(ValueError, match="of this call"):
        timeline.run(fail)
    assert timeline.run(lambda: 2) == 2


# --- Threads ------------------------------------------------------------------------------------


def test_the_gil_is_released_while_a_graph_runs(context):
    graph, inputs, outputs = heavy(context)
    context.dispatch(graph, inputs, outputs)
    times = []

    def run():
        begin = time.perf_counter()
        context.dispatch(graph, inputs, outputs)
        times.append(time.perf_counter() - begin)

    thread = threading.Thread(target=run)
    ticks = 0
    thread.start()
    while thread.is_alive():
        time.sleep(0.001)  # each end of a sleep needs the lock of the interpreter
        ticks += 1
    thread.join()
    assert times[0] > 0.02
    assert ticks >= 5, (ticks, times)


@pytest.mark.parametrize("backend", ["onnxruntime", "numpy", "torch", "jax", "mlx"])
def test_tensors_go_from_thread_to_thread(backend):
    context = ML().create_context(backend=backend)
    threads = [ThreadPoolExecutor(1) for _ in range(4)]
    creator, writer, runner, reader = (thread.submit for thread in threads)
    builder = MLGraphBuilder(context)
    descriptor = {"data_type": "float32", "shape": [2]}
    x = builder.input("x", descriptor)
    graph = builder.build({"y": builder.mul(x, builder.constant(descriptor, [2.0, 3.0]))})
    a, b = (creator(context.create_host_tensor, [2], "float32").result() for _ in range(2))
    writer(context.write_tensor, a, [1.0, 2.0]).result()
    runner(context.dispatch, graph, {"x": a}, {"y": b}).result()
    context.dispatch(graph, {"x": b}, {"y": a})
    assert asyncio.run(context.read_tensor_async(b)).tolist() == [2.0, 6.0]
    assert reader(context.read_tensor, a).result().tolist() == [4.0, 18.0]
    for thread in threads:
        thread.shutdown()


def test_several_threads_dispatch(context):
    graph = adding(context, data_type="int32")
    one = context.create_tensor([1], "int32", writable=True)
    context.write_tensor(one, [1])
    failed = []

    def count(start):
        try:
            ends = [context.create_host_tensor([1], "int32") for _ in range(2)]
            context.write_tensor(ends[0], [start])
            for _ in range(100):
                context.dispatch(graph, {"a": ends[0], "b": one}, {"y": ends[1]})
                ends.reverse()
            assert context.read_tensor(ends[0]).tolist() == [start + 100]
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=count, args=(1000 * place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert context.statistics.dispatches == 600


# --- asyncio ------------------------------------------------------------------------------------


def test_every_call_can_be_awaited():
    async def main():
        context = await ML().create_context_async({"deviceType": "cpu"})
        builder = MLGraphBuilder(context)
        x = builder.input("x", {"data_type": "float32", "shape": [2]})
        known = await context.create_constant_tensor_async(
            {"data_type": "float32", "shape": [2]}, [10.0, 20.0]
        )
        graph = await builder.build_async({"y": builder.add(x, builder.constant(known))})
        a = await context.create_host_tensor_async([2], "float32")
        b = await context.create_tensor_async(shape=[2], data_type="float32", readable=True)
        await context.write_tensor_async(a, [1.0, 2.0])
        await context.dispatch_async(graph, {"x": a}, {"y": b})
        assert (await context.read_tensor_async(b)).tolist() == [11.0, 22.0]
        filled = np.zeros(2, np.float32)
        assert await context.read_tensor_async(b, filled) is None
        assert filled.tolist() == [11.0, 22.0]
        context.destroy()
        return await context.lost

    assert "destroy" in asyncio.run(main()).message


def test_calls_keep_their_order_without_being_awaited(context):
    graph = adding(context, data_type="int32")
    one = context.create_tensor([1], "int32", writable=True)
    ends = [context.create_host_tensor([1], "int32") for _ in range(2)]

    async def main():
        context.write_tensor_async(one, [1])
        reads = []
        for _ in range(50):
            context.dispatch_async(graph, {"a": ends[0], "b": one}, {"y": ends[1]})
            reads.append(context.read_tensor_async(ends[1]))
            ends.reverse()
        # A synchronous call in between stands in line as well.
        assert context.read_tensor(ends[0]).tolist() == [50]
        return [int(made[0]) for made in await asyncio.gather(*reads)]

    assert asyncio.run(main()) == list(range(1, 51))


def test_data_are_taken_when_the_call_is_made(context):
    tensor = context.create_host_tensor([2], "int32")
    mine = np.array([1, 2], np.int32)

    async def main():
        written = context.write_tensor_async(tensor, mine)
        mine[:] = 9
        await written

    asyncio.run(main())
    assert context.read_tensor(tensor).tolist() == [1, 2]


def test_the_event_loop_goes_on_while_a_graph_runs(context):
    graph, inputs, outputs = heavy(context)

    async def main():
        ticks = 0
        running = asyncio.ensure_future(context.dispatch_async(graph, inputs, outputs))
        while not running.done():
            await asyncio.sleep(0.001)
            ticks += 1
        await running
        return ticks

    assert asyncio.run(main()) >= 5


def test_the_usual_ways_to_await(context):
    tensor = context.create_host_tensor([1], "int8")

    async def main():
        made = await asyncio.gather(
            context.read_tensor_async(tensor),
            asyncio.create_task(context.read_tensor_async(tensor)),
            asyncio.wait_for(context.read_tensor_async(tensor), 10),
        )
        assert [x.tolist() for x in made] == [[0]] * 3

    asyncio.run(main())
    # Nothing runs yet where it is called: it begins when it is awaited.
    assert asyncio.run(context.read_tensor_async(tensor)).tolist() == [0]


def test_errors_go_to_who_awaits(context):
    device = context.create_tensor([1], "int8")

    async def main():
        pending = context.read_tensor_async(device)  # as a promise: it raises nothing itself
        with pytest.raises(MLTypeError, match="not readable"):
            await pending
        with pytest.raises(MLTypeError, match="no data type"):
            await context.create_tensor_async([1], "float64")
        builder = MLGraphBuilder(context)
        with pytest.raises(MLTypeError, match="at least one"):
            await builder.build_async({})
        with pytest.raises(MLTypeError, match="device_type"):
            await ML().create_context_async(device_type="xpu")

    asyncio.run(main())


def test_cancelled_awaits_leave_the_timeline_alone(context):
    graph, inputs, outputs = heavy(context)
    tensor = context.create_host_tensor([1], "int8")

    async def main():
        task = asyncio.create_task(context.dispatch_async(graph, inputs, outputs))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await context.read_tensor_async(tensor)).tolist() == [0]

    asyncio.run(main())
    assert context.statistics.dispatches == 1


def test_reads_fail_when_their_tensor_is_destroyed(context):
    async def main():
        for _ in range(20):
            tensor = context.create_host_tensor([1], "int8")
            pending = context.read_tensor_async(tensor)
            tensor.destroy()
            with pytest.raises(InvalidStateError, match="destroyed"):
                await pending
        tensor = context.create_host_tensor([1], "int8")
        done = asyncio.ensure_future(context.read_tensor_async(tensor))
        while not done.done():
            await asyncio.sleep(0.001)
        tensor.destroy()  # too late to matter
        assert (await done).tolist() == [0]

    asyncio.run(main())


def test_what_is_queued_is_done_though_its_tensors_are_destroyed(context):
    graph = adding(context, data_type="int32")
    a, b = (context.create_host_tensor([1], "int32") for _ in range(2))
    y = context.create_host_tensor([1], "int32")
    context.write_tensor(a, [2])
    context.write_tensor(b, [3])

    async def main():
        running = context.dispatch_async(graph, {"a": a, "b": b}, {"y": y})
        a.destroy()
        graph.destroy()
        await running
        assert (await context.read_tensor_async(y)).tolist() == [5]

    asyncio.run(main())


def test_failures_of_the_engine(context, monkeypatch):
    graph = adding(context)
    tensors = [context.create_tensor([1], "float32") for _ in range(3)]
    named = {"a": tensors[0], "b": tensors[1]}, {"y": tensors[2]}

    def fail():
        raise RuntimeError("no memory")

    monkeypatch.setattr(graph._compiled, "prepare", lambda inputs, outputs: fail)
    with pytest.raises(OperationError, match="dispatch: the engine failed: no memory"):
        context.dispatch(graph, *named)
    with pytest.raises(OperationError, match="no memory"):
        asyncio.run(context.dispatch_async(graph, *named))
    assert context.statistics.dispatches == 0
