"""The blocks of ``cifar_cnn`` by Winograd's algorithm, beside torch's layers: time of a step, and error in float32.

    python -m benchmarks.convolutions [--repeats 20]

A step is a forward and a backward pass of 32 images on one core, both ways in turn; the least of the repeats counts.
The error of a gradient is the length of its difference from float64's by torch, as a share of the length of that.
"""

from __future__ import annotations

import argparse
import copy
import time

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from raysim.training.networks.convolution import PooledConvolutions
from raysim.training.networks.numpy_layers import by_numpy

BLOCKS = ((32, (3, 32, 32)), (16, (32, 64, 64)), (8, (64, 128, 128)))
"""Sides of the images, and their channels from layer to layer."""
IMAGES = 32


def gradient(block: PooledConvolutions, x: Tensor, by_result: Tensor, wanted: bool) -> Tensor:
    """The gradients by all parameters after a step, as one vector; by Winograd's algorithm if ``wanted``."""
    block.zero_grad()
    with by_numpy(block, wanted):
        torch.autograd.backward(block(x), by_result)
    return torch.cat([p.grad.flatten() for p in block.parameters() if p.grad is not None])


def main() -> None:
    """Print a line for each block, and one for all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    threadpool_limits(1)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{'a step of 32 images':<34}{'torch ms':>9}{'ours ms':>9}{'error, torch':>15}{'ours':>10}")
    totals = {False: 0.0, True: 0.0}
    for side, channels in BLOCKS:
        block = PooledConvolutions(*channels)
        x = torch.randn(IMAGES, channels[0], side, side).contiguous(memory_format=torch.channels_last)
        by_result = torch.randn(IMAGES, channels[-1], side // 2, side // 2)
        exact = gradient(copy.deepcopy(block).double(), x.double(), by_result.double(), False)
        x.requires_grad_(channels[0] > 3)  # nobody needs the gradient by the data
        times, errors = {False: float("inf"), True: float("inf")}, {}
        for _ in range(options.repeats):
            for wanted in times:
                began = time.perf_counter()
                found = gradient(block, x, by_result, wanted)
                times[wanted] = min(times[wanted], time.perf_counter() - began)
                errors[wanted] = float((found.double() - exact).norm() / exact.norm())
        name = f"{channels} on {side} x {side}"
        print(f"{name:<34}{1e3 * times[False]:9.2f}{1e3 * times[True]:9.2f}{errors[False]:15.1e}{errors[True]:10.1e}")
        totals = {wanted: total + times[wanted] for wanted, total in totals.items()}
    print(f"{'all':<34}{1e3 * totals[False]:9.2f}{1e3 * totals[True]:9.2f}")


if __name__ == "__main__":
    main()
