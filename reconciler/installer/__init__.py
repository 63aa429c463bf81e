"""The installer: the program that boots on a machine, fetches its document and writes its image (contract v1)."""
