"""What deploy/ holds, as the programs take it that are to use it."""
