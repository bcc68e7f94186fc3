"""Tables: fitted to the terminal where there is one, else one line a row."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import TypeAlias

from scepter_core.cli.output import has_colour, is_terminal

Cell: TypeAlias = str | tuple[str, str]
"""A text, or a text and its style on a terminal."""


def print_table(titles: Sequence[str], rows: Sequence[Sequence[Cell]], right: Collection[str] = ()) -> None:
    """Print a table to standard output.

    Args:
        titles: of the columns.
        rows: the cells of each row.
        right: titles of the columns that are aligned to the right.
    """
    if is_terminal(sys.stdout):
        _print_rich(titles, rows, right)
    else:
        for line in aligned([titles, *([_text(cell) for cell in row] for row in rows)], [t in right for t in titles]):
            print(line)


def print_text(text: str, indent: int = 0) -> None:
    """Print a line of text to standard output, broken to fit where that is a terminal.

    Args:
        text: the line.
        indent: columns that the lines after the first begin with.
    """
    if is_terminal(sys.stdout):
        import shutil
        import textwrap

        width = shutil.get_terminal_size().columns
        text = textwrap.fill(text, width, subsequent_indent=" " * indent, break_on_hyphens=False)
    print(text)


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool] = ()) -> list[str]:
    """One line a row, its cells padded to the width of their column and two spaces apart."""
    flat = [[" ".join(cell.splitlines()) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*flat, strict=True)]
    sides = [*right, *[False] * (len(widths) - len(right))]
    return [
        "  ".join(
            cell.rjust(width) if side else cell.ljust(width)
            for cell, width, side in zip(row, widths, sides, strict=True)
        ).rstrip()
        for row in flat
    ]


def _text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell[0]


def _print_rich(titles: Sequence[str], rows: Sequence[Sequence[Cell]], right: Collection[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in titles:
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else Text(cell[0], style=cell[1]) for cell in row))
    console = Console(color_system="auto" if has_colour(sys.stdout) else None, highlight=False)
    console.print(table)
