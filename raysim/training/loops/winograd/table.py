"""What the passes of a layer are given as a table of whole numbers."""

from __future__ import annotations

from typing import NamedTuple


class Table(NamedTuple):
    """The numbers, in their order. Arrays are the addresses of their first numbers."""

    product: int
    """BLAS's product of matrices, by its address."""
    inputs: int
    """:func:`raysim.training.loops.winograd.inputs.inputs`, by its address."""
    outputs: int
    """:func:`raysim.training.loops.winograd.outputs.outputs`."""
    by_inputs: int
    """:func:`raysim.training.loops.winograd.inputs.by_inputs`."""
    by_outputs: int
    """:func:`raysim.training.loops.winograd.outputs.by_outputs` or ``by_pooled``."""
    at_once: int
    """Rows of tiles that are computed at once, at most."""
    columns: int
    """Tiles in each."""
    channels: int
    """Channels of the images."""
    width: int
    """Channels of their tiles: some more may be zero."""
    maps: int
    """Channels of the outputs."""
    of_tiles: int
    """Numbers from one of the 36 points of the inputs' tiles to the next."""
    of_tiles_y: int
    """Likewise, of the outputs' tiles."""
    of_weights: int
    """Of the weights."""
    of_turned: int
    """Of the weights turned."""
    of_by_tiles: int
    """Of the derivatives by the inputs' tiles."""
    size: int
    """Bytes of a number."""
    factors: int
    """An array of 1 and 0."""
    room: int
    """Memory of ``inputs``; for these names see the package."""
    room_by: int
    """Of ``by_inputs``."""
    room_y: int
    """Of ``outputs`` and their derivatives."""
    strip: int
    tiles: int
    """Points of the inputs' tiles, then derivatives by them."""
    tiles_y: int
    """Points of the outputs' tiles, or derivatives by them."""
    weights: int
    """Points of the weights ``[36, width, maps]``, or the derivatives by them."""
    turned: int
    """Points of the weights ``[36, maps, channels]``."""
