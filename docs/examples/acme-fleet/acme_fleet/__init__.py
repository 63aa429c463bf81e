"""One extension of each kind: a fact and its signal, a notifier, an installer, a forge."""
