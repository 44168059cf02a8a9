"""The life of the service: prepare the host, listen, attack itself, serve, drain."""

import asyncio
import signal
import socket
import time
from pathlib import Path

import grpc
import structlog
from grpc_health.v1 import _async as async_health
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from populora.verifier.v1 import verifier_pb2 as pb
from populora.verifier.v1 import verifier_pb2_grpc as pb_grpc

from verifier_server.audit.records import AuditLog
from verifier_server.config import ServerConfig
from verifier_server.errors import SetupError
from verifier_server.evaluator import Evaluator
from verifier_server.memory import return_free_memory, share_heap
from verifier_server.sandbox import doctor, limits
from verifier_server.sandbox.nsjail import NsjailEngine
from verifier_server.scheduler import Scheduler
from verifier_server.service import ServiceState, VerifierService

_LOG = structlog.get_logger()
_SERVICE_NAME = pb.DESCRIPTOR.services_by_name["Verifier"].full_name
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_OPTIONS = [
    ("grpc.max_receive_message_length", limits.MAX_MESSAGE_BYTES),
    # A client that watches our health has an open stream and pings to see that we are there; by default more than two
    # pings in five minutes would end its connection.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_send_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),  # a second server on the same port must fail, not share it
]


def make_engine(config: ServerConfig) -> NsjailEngine:
    """Return the engine that the settings ask for, not started."""
    return NsjailEngine(
        state_dir=config.state_dir, python=config.python, nsjail=config.nsjail, packages=config.packages
    )


async def serve(config: ServerConfig) -> None:
    """Serve until SIGTERM or SIGINT. Must run on the main thread: jails die with it.

    Raises:
        SetupError: the host lacks something, the address is taken, or a protection is missing.
    """
    share_heap()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _check_address(config.address)
    audit = AuditLog(config.audit_folder)
    engine = make_engine(config)
    try:
        state = ServiceState(info=engine.start(), protections=[], started=time.monotonic())
        scheduler = Scheduler(slots=config.slots, capacity=config.queue_capacity)
        service = VerifierService(Evaluator(engine), scheduler, audit, state)
        server, checker = await _listen(config, service)
        trimming = asyncio.create_task(return_free_memory())
        try:
            await _become_ready(config, engine, state, checker)
            await stop.wait()
        finally:
            trimming.cancel()
            await _drain(config, server, checker, state)
    finally:
        engine.close()
        audit.close()


def _check_address(address: str) -> None:
    """Fail early and clearly if the address is in use; remove the socket file of a dead server."""
    if address.startswith("unix:"):
        path = Path(address.removeprefix("unix:"))
        if path.exists():
            if not path.is_socket():
                raise SetupError(f"{path} exists and is not a socket: choose another --address")
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(str(path)) == 0:
                    raise SetupError(f"{address} is in use: stop the other server or choose --address")
            path.unlink()
        return
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), int(port)))
        except OSError as error:
            raise SetupError(
                f"cannot listen on {address}: {error.strerror}. Stop the other server or choose --address"
            ) from error


async def _listen(
    config: ServerConfig, service: VerifierService
) -> tuple[grpc.aio.Server, async_health.HealthServicer]:
    server = grpc.aio.server(options=_OPTIONS)
    pb_grpc.add_VerifierServicer_to_server(service, server)
    checker = async_health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checker, server)
    for name in ("", _SERVICE_NAME):
        await checker.set(name, _NOT_SERVING)
    reflection.enable_server_reflection((_SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        server.add_insecure_port(config.address)
    except RuntimeError as error:
        raise SetupError(f"cannot listen on {config.address}: {error}") from error
    await server.start()
    return server, checker


async def _become_ready(
    config: ServerConfig, engine: NsjailEngine, state: ServiceState, checker: async_health.HealthServicer
) -> None:
    start = time.monotonic()
    found = await doctor.examine(engine, config.slots)
    state.protections = [pb.Protection(name=p.name, active=p.active, detail=p.detail) for p in found]
    missing = [p for p in found if not p.active]
    if missing:
        for protection in missing:
            _LOG.error("protection_missing", protection=protection.name, detail=protection.detail)
        raise SetupError(
            "the self-test failed, so the service will not run programs: "
            + "; ".join(f"{p.name} ({p.detail})" for p in missing)
        )
    state.ready = True
    for name in ("", _SERVICE_NAME):
        await checker.set(name, _SERVING)
    _LOG.info(
        "server_ready",
        address=config.address,
        slots=config.slots,
        protections=len(found),
        selftest_s=round(time.monotonic() - start, 2),
        image=state.info.image_digest[:12],
        python=state.info.python_version,
    )


async def _drain(
    config: ServerConfig, server: grpc.aio.Server, checker: async_health.HealthServicer, state: ServiceState
) -> None:
    """Refuse new requests, give running ones `drain_s`, then end."""
    state.ready = False
    await checker.enter_graceful_shutdown()
    await server.stop(config.drain_s)
    _LOG.info("server_stopped", requests=state.requests)
