"""The control API: HTTP and server-sent events over one unix socket, for the command line and for nobody else."""
