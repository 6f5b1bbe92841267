"""`python -m harness.resource`: the service alone, without the rest of the harness's commands."""

import argparse
import sys

import uvloop

from harness.resource.command import add_arguments, run

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m harness.resource", description="The fenced resource.")
    add_arguments(parser)
    sys.exit(uvloop.run(run(parser.parse_args())))
