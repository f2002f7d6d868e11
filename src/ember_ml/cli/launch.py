"""`ember launch`: a program in several processes, on one machine or on many."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperCommand

from ember_ml.errors import DomainError, EmberError

if TYPE_CHECKING:
    from ember_ml.distributed.launching.worker import Program

__all__ = ["add_to", "alone"]


class _Command(TyperCommand):
    """What comes after the script, or after -m and its module, is the program's own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        place = 0
        while place < len(args) and args[place].startswith("-") and args[place] != "--":
            if args[place] in ("-m", "--module"):
                args = [*args[: place + 2], "--", *args[place + 2 :]]
                break
            is_flag = args[place] == "--help" or "=" in args[place]
            attached = not args[place].startswith("--") and len(args[place]) > 2
            place += 1 if is_flag or attached else 2
        return super().parse_args(ctx, args)


def launch(
    program: Annotated[
        list[str] | None,
        typer.Argument(help="The script and its arguments.", metavar="SCRIPT [ARGS]"),
    ] = None,
    processes: Annotated[
        int | None, typer.Option("-n", "--nproc", help="Processes on this machine.")
    ] = None,
    module: Annotated[
        str | None, typer.Option("-m", "--module", help="Run a module, not a script.")
    ] = None,
    nnodes: Annotated[int | None, typer.Option(help="How many machines there are.")] = None,
    node_rank: Annotated[int | None, typer.Option(help="The number of this one, from 0.")] = None,
    master: Annotated[
        str | None, typer.Option(help="host:port of the machine with --node-rank 0.")
    ] = None,
    max_restarts: Annotated[
        int, typer.Option(help="How often a job that failed is started again.")
    ] = 0,
    backend: Annotated[
        str | None, typer.Option("--backend", "-b", help="The engine of all processes.")
    ] = None,
    heartbeat: Annotated[
        float, typer.Option(help="Seconds after which one that is stopped or silent is lost.")
    ] = 10.0,
    grace: Annotated[
        float, typer.Option(help="Seconds from SIGTERM to SIGKILL, when the job ends.")
    ] = 3.0,
    wait: Annotated[float, typer.Option(help="Seconds that machines wait for each other.")] = 300.0,
) -> None:
    """Run a program in several processes, and watch them: ember launch -n 2 train.py --lr 0.1.

    A process that fails, is killed or stopped ends the job, with a report. Under torchrun,
    mpiexec, Slurm and Kubernetes, it joins what is there.
    """
    from ember_ml.distributed.launching.output import printable

    try:
        code = _launched(
            _program(module, program or []),
            processes,
            nnodes,
            node_rank,
            master,
            max_restarts=max_restarts,
            backend=backend,
            heartbeat=heartbeat,
            grace=grace,
            wait=wait,
        )
    except (EmberError, OSError) as error:
        text = "\n".join(printable(line) for line in str(error).splitlines())
        Console(stderr=True, emoji=False).print(
            f"[red]error:[/red] {escape(text)}", soft_wrap=True, highlight=False
        )
        # 2, as for other wrong commands: 1 may be that of a rank.
        raise typer.Exit(2) from error
    raise typer.Exit(code)


def _launched(
    program: Program,
    processes: int | None,
    nnodes: int | None,
    node_rank: int | None,
    master: str | None,
    *,
    backend: str | None,
    **options: Any,
) -> int:
    """Run the job, or join one; the exit code."""
    from ember_ml.backend.selection import ENVIRONMENT_VARIABLE
    from ember_ml.distributed.launching.addresses import Endpoint
    from ember_ml.distributed.launching.agent import Agent, Options
    from ember_ml.distributed.launching.environment import enter, surroundings
    from ember_ml.distributed.launching.output import Screen

    program.require()
    _require_backend(backend)
    around = surroundings(os.environ, processes)
    if around.world is not None:
        # This process has a rank already, and runs the program itself.
        if backend is not None:
            os.environ[ENVIRONMENT_VARIABLE] = backend
        enter(around.world, os.environ.get(ENVIRONMENT_VARIABLE))
        return _run_here(program)
    nodes = _first(nnodes, around.nnodes, 1)
    made = Options(
        program,
        processes=1 if processes is None else processes,
        nnodes=nodes,
        # Pods of a job that were not told how many they are have nothing to do with each other.
        node_rank=_first(node_rank, around.node_rank if nodes > 1 else 0, 0),
        master=around.master if master is None else Endpoint.parse(master),
        backend=backend,
        **options,
    )
    return Agent(made, Screen()).run()


def _run_here(program: Program) -> int:
    from ember_ml.distributed.launching.worker import run

    try:
        run(program)
    except (EmberError, OSError) as error:
        # The program's own errors look as they do without a launcher.
        traceback.print_exc()
        sys.last_value = error
        return 1
    return 0


def _program(module: str | None, given: list[str]) -> Program:
    if sys.platform == "win32":
        raise DomainError("ember launch needs Linux or macOS: it ends processes by signals")
    from ember_ml.distributed.launching.worker import Program

    if module is not None:
        return Program(module, tuple(given), is_module=True)
    if not given:
        raise DomainError("ember launch needs a script: ember launch -n 2 train.py")
    return Program(given[0], tuple(given[1:]))


def _require_backend(name: str | None) -> None:
    from ember_ml import backend

    if name is not None and name not in backend.known_backends():
        known = ", ".join(backend.known_backends())
        raise DomainError(f"ember launch got --backend {name}; there are {known}")


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def add_to(app: typer.Typer) -> None:
    """Make it a command of `ember`."""
    app.command(
        "launch",
        cls=_Command,
        context_settings={"allow_interspersed_args": False},
    )(launch)


def alone() -> None:
    """The command by itself, for `python -m ember_ml.launch`."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    add_to(app)
    made: Any = typer.main.get_command(app)
    made(sys.argv[1:], prog_name="python -m ember_ml.launch")
