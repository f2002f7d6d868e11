"""The commands of `ember`, as a typer application."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax

import ember_ml as em
from ember_ml.backend.selection import ENVIRONMENT_VARIABLE, backend_file
from ember_ml.cli import launch
from ember_ml.errors import EmberError
from ember_ml.graph.text import plain

__all__ = ["app"]

app = typer.Typer(
    name="ember",
    help="One tensor API on NumPy, PyTorch, JAX and MLX.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
backends_app = typer.Typer(help="List the backends, or choose the default one.")
app.add_typer(backends_app, name="backends")
launch.add_to(app)


def _printable(text: str) -> str:
    """Names from a file may be in a message, and must not talk to the terminal."""
    return "\n".join(plain(line, 4000) for line in text.splitlines())


@contextmanager
def errors_for_people(console: Console) -> Iterator[None]:
    """Turn an error of the library into its message and exit status 1."""
    try:
        yield
    except (EmberError, OSError) as error:
        console.print(
            f"[red]error:[/red] {escape(_printable(str(error)))}", soft_wrap=True, emoji=False
        )
        raise typer.Exit(1) from error


def print_version(asked: bool) -> None:
    """Print the version and stop."""
    if asked:
        typer.echo(f"ember_ml {em.__version__}")
        raise typer.Exit


@app.callback()
def ember(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """One tensor API on NumPy, PyTorch, JAX and MLX."""


@app.command()
def demo(
    backend: Annotated[
        str | None, typer.Option("--backend", "-b", help="The engine; the current one if none.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="How often all pictures are seen.")] = 15,
    seed: Annotated[int, typer.Option(help="The same seed gives the same curve.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the curve to this PNG as well (needs matplotlib).")
    ] = None,
    code: Annotated[bool, typer.Option("--code", help="Show the program first.")] = False,
) -> None:
    """Train a network on handwritten digits, and draw its curve."""
    from ember_ml.cli import demo

    console = Console()
    if code:
        console.print(Syntax(inspect.getsource(demo.train), "python", background_color="default"))
    with errors_for_people(console):
        if backend is not None:
            em.set_backend(backend)
        demo.run(console, epochs, seed, plot)


@app.command()
def compare(
    backends: Annotated[
        list[str] | None, typer.Argument(help="Only these backends; all installed ones if none.")
    ] = None,
    code: Annotated[bool, typer.Option("--code", help="Show the program first.")] = False,
) -> None:
    """Run one small program on every backend installed, and compare the results."""
    from ember_ml.cli import compare, status

    console = Console()
    if code:
        console.print(
            Syntax(inspect.getsource(compare.program), "python", background_color="default")
        )
    names = list(dict.fromkeys(["numpy", *(backends or em.available_backends())]))
    outcomes = compare.run_all(names, console)
    reference = outcomes[0]
    console.print(compare.table(outcomes, reference))
    console.print(
        "The slope of a line through 512 points in float32, solved by the normal equations and "
        "approached by gradient descent; start is loading the engine and the first run."
    )
    for outcome in outcomes:
        if outcome.error:
            console.print(f"[red]{outcome.backend}[/red]: {escape(outcome.error)}", soft_wrap=True)
    commands = status.install_commands()
    if commands:
        console.print("\nMore backends:")
        for command in commands.values():
            console.print(f"  {escape(command)}", soft_wrap=True, highlight=False)
    if not all(compare.agrees(outcome, reference) for outcome in outcomes):
        console.print("[red]Not all backends gave the same result.[/red]")
        raise typer.Exit(1)


@app.command()
def info() -> None:
    """Show versions, backends, devices, and why the current backend is the current one."""
    from ember_ml.cli import status

    console = Console()
    with errors_for_people(console):
        with console.status("loading the current backend"):
            system = status.system_table()
        console.print(system)
        console.print(status.engines_table(console))


@app.command()
def run(
    model: Annotated[Path, typer.Argument(help="An .onnx file.")],
    given: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", help="x.npy, name=x.npy, or all of them in an .npz file."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Save the results as .npz or .npy.")
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option("--backend", "-b", help="onnxruntime if none; else numpy, torch, jax, mlx."),
    ] = None,
    cast: Annotated[bool, typer.Option("--cast", help="Cast arrays to the inputs' types.")] = False,
    repeat: Annotated[int, typer.Option(min=1, help="How often it is run, for its time.")] = 1,
) -> None:
    """Run an ONNX model on arrays in files, and show what comes out."""
    from ember_ml.cli import graphs

    console = Console()
    with errors_for_people(console):
        graphs.run(console, model, given or [], output, backend, cast=cast, repeat=repeat)


@app.command("inspect")
def inspect_file(
    path: Annotated[Path, typer.Argument(help="An .onnx file, or one of tensors.")],
    draw: Annotated[Path | None, typer.Option(help="Draw the graph to this SVG.")] = None,
    nodes: Annotated[bool, typer.Option("--nodes", help="List the nodes of the graph.")] = False,
) -> None:
    """Show what a model or a file of tensors holds."""
    from ember_ml.cli import graphs

    console = Console()
    with errors_for_people(console):
        graphs.inspect(console, path, draw, nodes=nodes)


@app.command()
def export(
    target: Annotated[str, typer.Argument(help="A saved model, or module:function_or_model.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .onnx file to write.")],
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            "-s",
            help="An input: x:1x3x224x224, or x:batch,3:int64; a name is a size that varies.",
        ),
    ] = None,
    external_data: Annotated[
        bool | None,
        typer.Option(help="Large weights in a file beside it; by their size if not said."),
    ] = None,
) -> None:
    """Trace a model or a function, and write it as an ONNX file."""
    from ember_ml.cli import graphs

    console = Console()
    with errors_for_people(console):
        graphs.export(console, target, output, shape or [], external=external_data)


@app.command()
def ops(
    pattern: Annotated[str, typer.Argument(help="Part of a name, or a pattern: 'conv*'.")] = "",
    backend: Annotated[
        list[str] | None, typer.Option("--backend", "-b", help="Only these backends.")
    ] = None,
) -> None:
    """Show every op with the backends that run it, and whether it can be exported to ONNX."""
    from ember_ml.cli import op_table

    console = Console()
    with errors_for_people(console):
        op_table.show(console, pattern, backend or [])


@app.command()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Only these, as overhead or storage; a wrong name lists all."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few rounds and smaller sizes: a first look.")
    ] = False,
    backend: Annotated[
        list[str] | None, typer.Option("--backend", "-b", help="Only these engines.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where bench.json, .html and .png are written.")
    ] = Path("ember-bench"),
    compare: Annotated[
        Path | None, typer.Option(help="The bench.json of an earlier run, shown beside.")
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Measure nothing: show this bench.json, or several as one."),
    ] = None,
    docs: Annotated[
        Path | None, typer.Option(help="Renew the tables and plots of benchmarks.md here.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 where a bar is missed.")
    ] = False,
) -> None:
    """Measure what ember_ml costs beside the raw engines: a table, JSON and a page of plots."""
    from ember_ml.cli import bench

    console = Console()
    with errors_for_people(console):
        bench.bench(
            console,
            names or [],
            backend or [],
            out,
            quick=quick,
            compare=compare,
            docs=docs,
            sources=source or [],
            check=check,
        )


@backends_app.callback(invoke_without_command=True)
def list_backends(context: typer.Context) -> None:
    """List the backends, installed or not, and the default one."""
    if context.invoked_subcommand is not None:
        return
    from ember_ml.cli import status

    console = Console()
    with errors_for_people(console), console.status("loading the current backend"):
        table = status.backends_table()
    console.print(table)
    for command in status.install_commands().values():
        console.print(f"  {escape(command)}", soft_wrap=True, highlight=False)


@backends_app.command("set")
def set_default(
    name: Annotated[str, typer.Argument(help="The backend to use by default.")],
) -> None:
    """Make a backend the default of programs started later (written to ~/.ember/backend)."""
    console = Console()
    with errors_for_people(console), console.status(f"loading {name}"):
        em.set_backend(name, persist=True)
    console.print(f"{name} is now the default backend ({backend_file()}).", soft_wrap=True)
    overriding = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    if overriding and overriding != name:
        console.print(
            f"[yellow]note:[/yellow] {ENVIRONMENT_VARIABLE}={overriding} is set in this shell "
            "and goes before the file.",
            soft_wrap=True,
        )


@backends_app.command("unset")
def unset_default() -> None:
    """Forget the default: the best engine of the machine is chosen again."""
    backend_file().unlink(missing_ok=True)
    Console().print("No default is stored; the best engine found on this machine is used.")
