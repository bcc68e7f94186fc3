"""`scepter convert`: a checkpoint of SCEPTER's for this engine, or the weights of either as safetensors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from scepter_core.cli.options import Work
from scepter_core.locations import without_passwords

if TYPE_CHECKING:
    from scepter_core.migration import Conversion

Old = Annotated[
    str, typer.Argument(metavar="OLD", help="A checkpoint of SCEPTER's, or one of this engine.", show_default=False)
]
New = Annotated[
    str,
    typer.Argument(
        metavar="NEW", help="NAME.pth: a checkpoint; NAME.safetensors: the weights alone.", show_default=False
    ),
]
Done = Annotated[
    int | None, typer.Option(min=0, help="Training done so far. Default: as OLD says.", show_default=False)
]


def convert(
    old: Old,
    new: New,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace NEW where it exists.")] = False,
    weights_only: Annotated[
        bool,
        typer.Option("--weights-only", help="The weights alone: a run that resumes from NEW starts at its beginning."),
    ] = False,
    keep_names: Annotated[
        bool, typer.Option("--keep-names", help="Leave `module.` where all names of weights begin with it.")
    ] = False,
    epoch: Done = None,
    step: Done = None,
) -> Work:
    """Convert a checkpoint.

    OLD is read without running any code, and is left as it is; NEW appears whole or not at all.
    """
    if weights_only and (epoch is not None or step is not None):
        raise typer.BadParameter("starts at the beginning: leave out --epoch and --step", param_hint="--weights-only")
    return partial(_convert, old, new, overwrite, weights_only, keep_names, epoch, step)


def _convert(
    old: str, new: str, overwrite: bool, weights_only: bool, keep_names: bool, epoch: int | None, step: int | None
) -> int:
    from scepter_core import migration

    done = migration.convert(
        old, new, overwrite=overwrite, weights_only=weights_only, keep_names=keep_names, epoch=epoch, step=step
    )
    print("\n".join(_lines(without_passwords(old), without_passwords(new), done)))
    return 0


def _lines(old: str, new: str, done: Conversion) -> list[str]:
    parts = [
        f"{done.tensors} tensors of weights",
        f"epoch {done.epoch}, step {done.step}" + (f", update {done.updates}" if done.updates is not None else ""),
        *(("the optimizer's state",) if done.optimizer else ()),
        *(("the scaler's state",) if done.scaler else ()),
    ]
    lines = [f"{new}: {'; '.join(parts)}", f"from {old}: {done.layout}"]
    if done.stripped:
        lines.append("the weights' names lost the `module.` that all of them began with")
    if done.cut_epoch is not None:
        lines.append(
            f"saved inside epoch {done.cut_epoch}, which begins anew in a run that resumes: "
            f"--epoch {done.cut_epoch} if it was at its end"
        )
    if done.left_out:
        lines.append(f"not taken over: {', '.join(done.left_out)}")
    return lines
