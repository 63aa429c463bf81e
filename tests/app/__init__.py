"""Tests of the use cases that the command line shares with the service and CI."""
