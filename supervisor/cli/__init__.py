"""The command line `mxs`: a thin client of the control API, and of the files that need no supervisor."""
