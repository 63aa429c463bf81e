"""The `rehearse` use case: a rollout is simulated before it happens."""
