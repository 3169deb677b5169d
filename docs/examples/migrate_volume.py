#!/usr/bin/python3
"""Moves a volume through a volferry agent over mutual TLS, follows the move to its end, and prints the result as JSON.

The messages come from agent/proto. On Debian (python3-grpcio, protobuf-compiler, protobuf-compiler-grpc, libprotobuf-dev):

    protoc -I agent/proto -I /usr/include --python_out=STUBS --grpc_python_out=STUBS \\
        --plugin=protoc-gen-grpc_python=/usr/bin/grpc_python_plugin volferry/v1/volferry.proto

or, with grpcio-tools of PyPI:

    python3 -m grpc_tools.protoc -I agent/proto --python_out=STUBS --grpc_python_out=STUBS volferry/v1/volferry.proto

and then, with STUBS in PYTHONPATH:

    migrate_volume.py --agent host-a.example:16510 --ca agents-ca.crt --cert me.crt --key me.key \\
        --operation-id job-4711 --domain web --disk vda --to ceph-ssd

Exit codes are those of the volferry command: 0 moved, 1 failed and rolled back, 2 usage, 3 refused, 4 cancelled,
5 the agent cannot be reached, 6 an operator has to look.
"""

import argparse
import sys
import time

import grpc
from google.protobuf import json_format

from volferry.v1 import volferry_pb2 as api
from volferry.v1 import volferry_pb2_grpc as calls

FINAL = {
    api.STATE_SUCCEEDED: 0,
    api.STATE_FAILED: 1,
    api.STATE_CANCELLED: 4,
    api.STATE_NEEDS_OPERATOR: 6,
}
# The agent or the way to it is gone. What was asked for may have begun: the same operation id finds it again.
LOST = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.CANCELLED,
}


class Refused(Exception):
    """The agent answered, and the answer is no. Nothing was changed."""

    def __init__(self, error):
        told = dict(error.trailing_metadata() or ())
        self.code = told.get("volferry-refusal-code", error.code().name.lower())
        self.retry = told.get("volferry-retry", "never")
        super().__init__(f"{self.code}: {error.details()}")


def answered(error):
    """Whether the agent itself said it, so that there is nothing to be asked again at once."""
    told = dict(error.trailing_metadata() or ())
    return "volferry-retry" in told or error.code() not in LOST


def persistently(call, patience):
    """Calls until the agent answers, with growing pauses, for `patience` seconds. Only for calls that may be repeated:
    those that look, and Migrate with an operation id."""
    pause, until = 0.2, time.monotonic() + patience
    while True:
        try:
            return call()
        except grpc.RpcError as error:
            if answered(error):
                raise Refused(error) from error
            if time.monotonic() + pause > until:
                raise
            print(f"{error.code().name}: {error.details()}; again in {pause:.1f} s", file=sys.stderr)
            time.sleep(pause)
            pause = min(pause * 2, 10)


def begin(agent, request, patience):
    """Accepted, or found again. A refusal of the class `later` is waited out as long as there is patience."""
    until = time.monotonic() + patience
    while True:
        try:
            return persistently(lambda: agent.Migrate(request, timeout=180), patience)
        except Refused as refused:
            if refused.retry not in ("now", "later") or time.monotonic() + 5 > until:
                raise
            print(f"{refused}; again in 5 s", file=sys.stderr)
            time.sleep(5)


def follow(agent, operation_id, patience):
    """Every change of the operation, to its end. A stream that breaks is opened anew: it begins with what is true now."""
    while True:
        first = persistently(
            lambda: agent.GetOperation(api.GetOperationRequest(operation_id=operation_id), timeout=30), patience
        )
        yield first
        if first.state in FINAL:
            return
        try:
            for operation in agent.WatchOperation(api.WatchOperationRequest(operation_id=operation_id)):
                yield operation
                if operation.state in FINAL:
                    return
        except grpc.RpcError as error:
            if answered(error):
                raise Refused(error) from error
            print(f"the watch broke off ({error.code().name}); the move goes on", file=sys.stderr)
        time.sleep(1)


def describe(operation):
    """One line about where it is. What is copied says how far it is only while it copies."""
    progress, share = operation.progress, ""
    if operation.state == api.STATE_COPYING and progress.total_bytes:
        share = f" {100 * progress.copied_bytes // progress.total_bytes} %"
    return f"{api.State.Name(operation.state)}{share} {operation.detail}".rstrip()


def wait_for_answer(channel, patience):
    """Until there is a connection both sides accept, which tells a certificate that is refused from a host that is away."""
    grpc.channel_ready_future(channel).result(timeout=patience)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agent", required=True, metavar="HOST:PORT")
    for name in ("ca", "cert", "key"):
        parser.add_argument(f"--{name}", required=True, metavar="FILE", type=argparse.FileType("rb"))
    parser.add_argument("--operation-id", required=True, help="your own name for this move: the same one finds it again")
    parser.add_argument("--domain")
    parser.add_argument("--disk")
    parser.add_argument("--volume", metavar="POOL/NAME", help="a volume nobody uses, instead of a disk")
    parser.add_argument("--format", choices=("raw", "qcow2"), default="raw")
    parser.add_argument("--to", required=True, metavar="POOL")
    parser.add_argument("--patience", type=float, default=60, metavar="SECONDS")
    words = parser.parse_args()
    if bool(words.volume) == bool(words.domain and words.disk):
        parser.error("either --domain and --disk, or --volume")

    request = api.MigrateRequest(operation_id=words.operation_id, to_pool=words.to)
    if words.volume:
        pool, _, name = words.volume.partition("/")
        kind = api.VOLUME_FORMAT_QCOW2 if words.format == "qcow2" else api.VOLUME_FORMAT_RAW
        request.volume.CopyFrom(api.VolumeSelector(pool=pool, name=name, format=kind))
    else:
        request.domain, request.disk = words.domain, words.disk

    credentials = grpc.ssl_channel_credentials(words.ca.read(), words.key.read(), words.cert.read())
    options = [("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 10_000)]
    with grpc.secure_channel(words.agent, credentials, options) as channel:
        agent = calls.VolferryStub(channel)
        try:
            wait_for_answer(channel, words.patience)
            begin(agent, request, words.patience)
        except Refused as refused:
            print(f"refused: {refused} (retry: {refused.retry})", file=sys.stderr)
            return 3
        except grpc.FutureTimeoutError:
            print(f"no connection to {words.agent} that both sides accept", file=sys.stderr)
            return 5
        except grpc.RpcError as error:
            print(f"the agent cannot be reached: {error.code().name}: {error.details()}", file=sys.stderr)
            return 5
        # From here on it may move, whatever is answered: what is not known is asked again under the same id.
        try:
            last, told = None, None
            for last in follow(agent, words.operation_id, words.patience):
                line = describe(last)
                if line != told:
                    print(line, file=sys.stderr)
                told = line
        except (Refused, grpc.RpcError) as error:
            print(f"how it ends is not known: {error}; ask again with the same operation id", file=sys.stderr)
            return 5
    print(json_format.MessageToJson(last, preserving_proto_field_name=True))
    return FINAL[last.state]


if __name__ == "__main__":
    sys.exit(main())
