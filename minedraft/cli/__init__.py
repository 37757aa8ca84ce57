"""The command line. Starts without torch; only the workers' commands load it."""

from minedraft.cli import grpc_log

grpc_log.quiet()  # before any module of this package imports grpc
