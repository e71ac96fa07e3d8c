"""The parts of a hospital's visit: the model it starts from, the rows and the objective, and whose error it was."""
