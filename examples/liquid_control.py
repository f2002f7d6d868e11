"""A liquid network of 20 neurons balances a pole on a cart, as it saw a controller do it.

The controller knows positions and velocities. The network sees the position of the cart and the
angle of the pole only, at irregular times, and has to remember how they moved.

python examples/liquid_control.py --backend torch --plot control.png
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import ember_ml as em
from ember_ml import nn, ops
from ember_ml.nn import wirings
from ember_ml.training import AdamW, CosineSchedule

Array = np.ndarray[Any, Any]
# What a force of one is to the network, and how far cart and pole go.
FORCE, SCALE = 10.0, np.array([1.0, 0.2], np.float32)
TICK = 0.02  # seconds between two looks, on average


# --- The cart, the pole, and a controller that knows them ---------------------------------------


def moved(state: Array, force: Array, seconds: Array) -> Array:
    """Position, angle, velocity and turning rate of carts after some time, in four small steps."""
    for _ in range(4):
        _, angle, speed, rate = state.T
        sine, cosine = np.sin(angle), np.cos(angle)
        # A cart of 1 kg, a pole of 0.1 kg whose centre is half a metre away.
        push = (force + 0.05 * rate**2 * sine) / 1.1
        turn = (9.81 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        change = np.stack([speed, rate, push - 0.05 * turn * cosine / 1.1, turn], -1)
        state = state + change * seconds[:, None] / 4
    return state


def gains() -> Array:
    """The linear controller with the least cost, by Riccati's equation around the upright pole."""
    zero, one = np.zeros(1), np.array([TICK])
    basis = np.eye(4) * 1e-4
    a = np.stack([moved(row[None], zero, one)[0] / 1e-4 for row in basis], 1)
    b = moved(np.zeros((1, 4)), np.ones(1), one).T
    cost, value = np.diag([1.0, 10.0, 0.1, 0.1]), np.eye(4)
    for _ in range(2000):
        gain = np.linalg.solve(b.T @ value @ b + 0.01, b.T @ value @ a)
        value = cost + a.T @ value @ (a - b @ gain)
    return gain[0]


def ride(
    control: Callable[[Array, Array], Array], runs: int, looks: int, seed: int, noise: float = 0.0
) -> tuple[Array, Array, Array]:
    """States, time spans and what the controller said, of several rides from random states."""
    rng = np.random.default_rng(seed)
    state = rng.uniform(-1, 1, (runs, 4)) * [0.5, 0.15, 0.3, 0.3]
    states, spans, said = [], [], []
    span = np.full(runs, TICK)
    for _ in range(looks):
        force = control(state, span)
        states.append(state)
        spans.append(span)
        said.append(force)
        span = rng.uniform(0.5, 1.5, runs) * TICK
        pushed = np.clip(force + noise * rng.standard_normal(runs), -30, 30)
        state = moved(state, pushed, span)
    return np.stack(states, 1), np.stack(spans, 1), np.stack(said, 1)


def seen(states: Array) -> Array:
    """What the network is shown of a state."""
    return (states[..., :2] / SCALE).astype(np.float32)


# --- The network --------------------------------------------------------------------------------


def network(kind: str, wiring: wirings.Wiring) -> Any:
    """A closed-form or a liquid time-constant network."""
    return nn.CfC(2, wiring, mode="no_gate") if kind == "cfc" else nn.LTC(2, wiring, ode_unfolds=3)


def trained(model: Any, steps: int, seed: int) -> list[float]:
    """Let the model imitate the controller; gives the losses."""
    gain = gains()
    states, spans, force = ride(lambda s, _: -s @ gain, 128, 30, seed, noise=3.0)
    x, t = seen(states), (spans / TICK).astype(np.float32)
    y = (force / FORCE).astype(np.float32)[..., None]
    optimizer = AdamW(model, lr=CosineSchedule(1e-2, steps), weight_decay=0.0)

    def error(model: Any, x: em.Tensor, t: em.Tensor, y: em.Tensor) -> em.Tensor:
        # What it cannot know yet is not asked for: it has to see some movement first.
        return ops.mean((model(x, timespans=t)[0][:, 4:] - y[:, 4:]) ** 2)

    @em.jit(state=[model, optimizer])
    def step(x: em.Tensor, t: em.Tensor, y: em.Tensor) -> em.Tensor:
        loss, grads = em.value_and_grad(error)(model, x, t, y)
        optimizer.update(model, grads)
        return loss

    rng = np.random.default_rng(seed)
    losses = []
    for _ in range(steps):
        rows = rng.choice(len(x), 32, replace=False)
        losses.append(step(*(ops.asarray(part[rows]) for part in (x, t, y))).item())
    return losses


class Driver:
    """The network as a controller: it keeps its state from look to look."""

    def __init__(self, model: Any) -> None:
        self.cell = em.jit(model.cell)
        self.state: Any = None

    def __call__(self, state: Array, span: Array) -> Array:
        if self.state is None:
            self.state = ops.zeros((len(state), 20))
        spans = ops.asarray((span / TICK).astype(np.float32))
        with em.no_grad():
            out, self.state = self.cell(ops.asarray(seen(state)), self.state, spans)
        return out.numpy()[:, 0].astype(float) * FORCE


def main() -> None:
    """Imitate, then drive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["numpy", "torch", "jax", "mlx"])
    parser.add_argument("--model", choices=["cfc", "ltc"], default="cfc")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", metavar="PNG", help="draw the losses, a ride and the wiring")
    options = parser.parse_args()
    if options.backend:
        em.set_backend(options.backend)
    ops.random.set_seed(options.seed)

    wiring = wirings.AutoNCP(20, outputs=1, sparsity=0.5, seed=options.seed)
    model = network(options.model, wiring)
    losses = trained(model, options.steps, options.seed)

    gain = gains()
    drivers: dict[str, Callable[[Array, Array], Array]] = {
        "nobody": lambda s, _: np.zeros(len(s)),
        "the controller": lambda s, _: -s @ gain,
        "the network": Driver(model),
    }
    table = Table(title=f"{wiring.synapse_count(2)} synapses, on '{em.get_backend()}'")
    table.add_column("who drives")
    table.add_column("upright after 4 s", justify="right")
    table.add_column("mean angle, degrees", justify="right")
    rides = {}
    for name, driver in drivers.items():
        states = rides[name] = ride(driver, 50, 200, options.seed + 1)[0]
        upright = np.mean(np.abs(states[:, :, 1]).max(1) < 0.5)
        degrees = np.degrees(np.minimum(np.abs(states[:, :, 1]), np.pi).mean())
        table.add_row(name, f"{upright:.0%}", f"{degrees:.1f}")
    console = Console()
    console.print(f"error of the imitation: {losses[0]:.4f} at first, {losses[-1]:.4f} at last")
    console.print(table)
    if options.plot:
        draw(options.plot, losses, rides, wiring)
        console.print(f"losses and a ride are drawn in {options.plot}")


def draw(path: str, losses: list[float], rides: dict[str, Array], wiring: wirings.Wiring) -> None:
    """The losses and the angles of some rides; the wiring in a picture beside it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.semilogy(losses)
    left.set(xlabel="step", ylabel="error of the imitation")
    seconds = np.arange(200) * TICK
    for name, colour in (("the controller", "#4f77aa"), ("the network", "#d1793b")):
        angles = np.degrees(rides[name][:6, :, 1]).T
        lines = right.plot(seconds, angles, color=colour, alpha=0.6, lw=1)
        lines[0].set_label(name)
    right.set(xlabel="seconds", ylabel="angle, degrees", ylim=(-30, 30))
    right.legend()
    figure.savefig(path, dpi=110)
    wiring.draw(2, path.removesuffix(".png") + "-wiring.png")


if __name__ == "__main__":
    main()
