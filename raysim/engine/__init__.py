"""A round: messages, training, merging, evaluation."""
