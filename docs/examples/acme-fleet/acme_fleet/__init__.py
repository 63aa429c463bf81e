"""One extension of each kind: a fact and its signal, a tool of the gate, a notifier, an installer, a forge."""
