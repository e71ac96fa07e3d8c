"""Winograd's convolution F(4 x 4, 3 x 3) with ReLU, batch norm and max pooling, compiled for this processor.

Lavin and Gray, "Fast algorithms for convolutional neural networks", CVPR 2016, section 4.1. A tile of 4 x 4 outputs
comes from 6 x 6 inputs: ``Y = A' [(G w G') * (B' d B)] A``. Summed over channels, the product in the middle is 36
products of matrices, with a quarter of the multiplications of the convolution itself. What surrounds them is additions,
and reading and writing memory. They are the cost, so that they are compiled, for images of one size: their numbers are
constants of the compiler.

Arrays are images ``[n, H, W, C]`` with channels last, and points ``[36, rows, columns]`` of tiles or weights, a little
more apart than they are long. All arrays are flat. H and W are multiples of 4. The loops take some rows of tiles, from
``low`` up to ``high`` of all images' rows; they compute in memory that they are given and overwrite:

- ``room``: six lines of an image with a border, or four without;
- ``strip``: the 36 numbers of a tile, or of weights, for each channel.

Images are read and written line by line, which a processor foresees, and as tiles where they are in its nearest cache.
In float32 results differ from the convolution by a few millionths of their largest value. A variance is the mean of
squares less the square of the mean, in float64: where a bias of 10,000 makes the mean 17,000 deviations, it is wrong in
the sixth digit. torch's is wrong in the fourth in float32, and in the fifteenth in float64.
"""
