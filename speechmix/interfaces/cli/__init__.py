"""The command line, a file for each group of commands; every command is one call of the package."""

from .command_line import main

__all__ = ["main"]
