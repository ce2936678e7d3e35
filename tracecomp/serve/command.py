"""``tracecomp serve``: its options. The server itself is imported when it runs."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from tracecomp.base.errors import TracecompError
from tracecomp.serve.spawner import SPAWNER

_LINE = "serve a folder of models over HTTP and gRPC"


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``serve`` to the command line."""
    parser = commands.add_parser("serve", help=_LINE, description=f"{_LINE} (Open Inference Protocol, version 2)")
    parser.add_argument("models", type=Path, help="folder of NAME.onnx, NAME.pt2, NAME.tcp or NAME/VERSION/ folders")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="port of HTTP, 0 for any (default: %(default)s)")
    parser.add_argument("--grpc-port", type=int, default=8001, help="port of gRPC, 0 for any (default: %(default)s)")
    parser.add_argument("--no-grpc", action="store_true", help="serve HTTP only")
    parser.add_argument(
        "--management-port", type=int, metavar="PORT", help="open a port on 127.0.0.1 to load and unload models"
    )
    parser.add_argument(
        "--snapshot", type=Path, metavar="FILE", help="continue with the models of this file, which keeps each change"
    )
    parser.add_argument("--allow-code", action="store_true", help="run the Python code of .mar archives")
    parser.add_argument(
        "--max-body-mb", type=float, default=64, metavar="MB", help="largest request (default: %(default)s)"
    )
    parser.add_argument("--log-requests", action="store_true", help="log each request")
    parser.add_argument("--log-json", action="store_true", help="write log lines as JSON objects")
    parser.add_argument("--certfile", type=Path, metavar="FILE", help="certificate chain (PEM), which turns TLS on")
    parser.add_argument("--keyfile", type=Path, metavar="FILE", help="private key (PEM), if --certfile lacks it")
    parser.set_defaults(run=run_serve)


def run_serve(options: argparse.Namespace) -> int:
    """Run the server until it is stopped."""
    SPAWNER.fork()  # it imports what workers need while this process imports the server
    try:
        server = import_module("tracecomp.serve.server")
    except ImportError as error:
        raise TracecompError(f"tracecomp serve needs {error.name}: pip install 'tracecomp[serve]'") from error
    told = server.Options(
        options.models, options.host, options.port, None if options.no_grpc else options.grpc_port,
        int(options.max_body_mb * 2**20), options.log_requests, options.management_port,
        options.allow_code, options.snapshot, options.log_json, options.certfile, options.keyfile,
    )  # fmt: skip
    return int(server.run(told))
