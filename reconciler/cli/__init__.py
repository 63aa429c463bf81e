"""The command line: commands, exit codes and wiring. The only place that joins drivers to converge."""
