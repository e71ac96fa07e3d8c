"""Boosted trees, computed from sums over rows.

- :mod:`raysim.trees.settings`: the options of the model, and the columns that it uses.
- :mod:`raysim.trees.edges`: the edges of bins, from counts of rows; :mod:`raysim.trees.binning`: the bin of each value.
- :mod:`raysim.trees.losses`: the gradients that a row adds to the sums; :mod:`raysim.trees.histograms`: the sums over
  the rows of each node and bin.
- :mod:`raysim.trees.splits`: the best split of a node; :mod:`raysim.trees.growing`: a tree, level by level.
- :mod:`raysim.trees.forest`: the trees of a model, and how they score rows; :mod:`raysim.trees.stored`: trees as a
  vector of parameters; :mod:`raysim.trees.json_export`: trees as JSON.
- :mod:`raysim.trees.boosting`: boosting on rows that are all in one place.

All sums are sums of whole numbers. They are therefore the same, bit for bit, in any order of rows or hospitals.
"""
