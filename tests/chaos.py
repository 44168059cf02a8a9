"""A gRPC proxy before a real verifier that makes the trouble a test asks for."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2

# Gets the number of the call (from 1) and the method; returns None (forward), a status, seconds to wait, or reply bytes.
Fault = Callable[[int, str], "grpc.StatusCode | float | bytes | None"]


class ChaosProxy(grpc.GenericRpcHandler):
    """Forwards unary calls as bytes; `fault` decides what happens to each instead."""

    def __init__(self, target: str, address: str, fault: Fault = lambda number, method: None) -> None:
        self.fault = fault
        self.calls = 0
        self._upstream = grpc.insecure_channel(target)
        self._server = grpc.server(ThreadPoolExecutor(32), handlers=[self])
        port = self._server.add_insecure_port(address)
        self.address = address if address.startswith("unix:") else f"127.0.0.1:{port}"
        self._server.start()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        method = details.method
        if method.startswith("/grpc.health"):
            return None  # UNIMPLEMENTED: clients take it for healthy
        forward = self._upstream.unary_unary(method)

        def handle(request: bytes, context: grpc.ServicerContext) -> bytes:
            self.calls += 1
            fault = self.fault(self.calls, method.rsplit("/", 1)[1])
            if isinstance(fault, grpc.StatusCode):
                if fault is grpc.StatusCode.RESOURCE_EXHAUSTED:
                    context.set_trailing_metadata((("grpc-status-details-bin", _ask_to_wait(0.05)),))
                context.abort(fault, "made by the test")
            if isinstance(fault, bytes):
                return fault
            if fault is not None:
                time.sleep(fault)
            return forward(request)

        return grpc.unary_unary_rpc_method_handler(handle)

    def stop(self) -> None:
        self._server.stop(None).wait()
        self._upstream.close()


def _ask_to_wait(seconds: float) -> bytes:
    status = status_pb2.Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])
    info = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(nanos=int(seconds * 1e9)))
    status.details.add().Pack(info)
    return status.SerializeToString()
