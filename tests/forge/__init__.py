"""A forge of the tests' own: `server` speaks as much of GitHub's REST API as we use."""
