"""The HTTP server on real sockets: many addresses, clients that are slow, silent, garbled or many, and none of them a burden."""

import contextlib
import errno
import http.client
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kproxy_core.model.addresses import parse_address
from kproxy_core.runtime import http_listeners
from kproxy_core.runtime.http_listeners import HttpListeners, ListenAddress
from kproxy_core.runtime.http_messages import Request, Response

PATIENCE = 20.0


def wait_until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.005)


def free_address(host: str = "127.0.0.1") -> ListenAddress:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return ListenAddress(address=parse_address(host), port=probe.getsockname()[1])


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def echo(request: Request) -> Response:
    return Response(body=f"{request.method} {request.path}".encode())


@pytest.fixture
def listeners() -> Iterator[HttpListeners]:
    made = HttpListeners()
    yield made
    made.close()


@pytest.fixture
def where(listeners: HttpListeners) -> ListenAddress:
    address = free_address()
    assert listeners.serve({address: echo}) == {}
    return address


def connect(where: ListenAddress, host: str = "") -> socket.socket:
    return socket.create_connection((host or str(where.address), where.port), timeout=PATIENCE)


def ask(where: ListenAddress, method: str = "GET", path: str = "/x", host: str = "") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(host or str(where.address), where.port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def everything(client: socket.socket) -> bytes:
    received = b""
    while data := client.recv(65536):
        received += data
    return received


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "PUT", "NONSENSE"])
def test_every_method_is_answered(where: ListenAddress, method: str) -> None:
    assert ask(where, method) == (200, f"{method} /x".encode())


def test_a_head_has_no_body(where: ListenAddress) -> None:
    with connect(where) as client:
        client.sendall(b"HEAD /x HTTP/1.1\r\n\r\n")
        answer = everything(client)
    assert b"Content-Length: 7\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_addresses_come_and_go_one_by_one(listeners: HttpListeners) -> None:
    one, two = free_address(), free_address()
    assert listeners.serve({one: echo, two: lambda _: Response(body=b"two")}) == {}
    assert (ask(one)[1], ask(two)[1]) == (b"GET /x", b"two")
    assert listeners.serve({two: lambda _: Response(body=b"other")}) == {}
    assert ask(two)[1] == b"other"
    with pytest.raises(ConnectionRefusedError):
        connect(one)


def test_a_taken_address_is_told_and_had_when_it_is_free(listeners: HttpListeners, where: ListenAddress) -> None:
    taken = free_address()
    with socket.socket() as other:
        other.bind((str(taken.address), taken.port))
        other.listen()
        assert listeners.serve({where: echo, taken: echo}) == {taken: os.strerror(errno.EADDRINUSE)}
        assert ask(where)[0] == 200
    assert listeners.serve({where: echo, taken: echo}) == {}
    assert ask(taken)[0] == 200


def test_an_address_that_the_host_does_not_have_is_told(listeners: HttpListeners) -> None:
    strange = ListenAddress(address=parse_address("192.0.2.77"), port=free_address().port)
    assert listeners.serve({strange: echo}) == {strange: os.strerror(errno.EADDRNOTAVAIL)}


def test_the_unspecified_address_serves_both_families(listeners: HttpListeners) -> None:
    port = free_address().port
    both = ListenAddress(address=parse_address("::"), port=port)
    failures = listeners.serve({both: echo})
    if failures:
        pytest.skip("no IPv6 on this machine")
    assert ask(both, host="::1")[0] == 200
    assert ask(both, host="127.0.0.1")[0] == 200


def test_an_answer_that_fails_is_an_error_of_its_own(listeners: HttpListeners, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Request) -> Response:
        raise RuntimeError("no")

    address = free_address()
    listeners.serve({address: broken})
    assert ask(address)[0] == 500
    assert "a request for /x could not be answered" in caplog.text
    assert ask(address)[0] == 500


@pytest.mark.parametrize("data", [b"hello\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n", b"GET\r\n\r\n"])
def test_garbage_is_refused_at_once(where: ListenAddress, data: bytes) -> None:
    with connect(where) as client:
        client.sendall(data)
        assert everything(client).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_an_endless_request_is_refused(where: ListenAddress) -> None:
    with connect(where) as client:
        client.sendall(b"GET /x HTTP/1.1\r\nA: " + b"a" * 20_000)
        assert everything(client).startswith(b"HTTP/1.1 431 ")


def test_a_request_byte_by_byte_is_answered(where: ListenAddress) -> None:
    with connect(where) as client:
        for byte in b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n":
            client.sendall(bytes([byte]))
        assert everything(client).endswith(b"GET /slow")


def test_a_client_that_closes_its_side_first_is_answered(where: ListenAddress) -> None:
    with connect(where) as client:
        client.sendall(b"GET /half HTTP/1.1\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        assert everything(client).endswith(b"GET /half")


def test_a_client_that_sends_more_than_it_should_still_gets_its_answer(where: ListenAddress) -> None:
    with connect(where) as client:
        client.sendall(b"POST /x HTTP/1.1\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(50):
            client.sendall(b"a" * 1000)
        assert everything(client).endswith(b"POST /x")


def test_a_large_answer_reaches_a_client_that_reads_slowly(listeners: HttpListeners, where: ListenAddress) -> None:
    address, body = free_address(), os.urandom(3_000_000)
    listeners.serve({where: echo, address: lambda _: Response(body=body)})
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE)
        client.connect((str(address.address), address.port))
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        # Nobody else waits for it.
        assert all(ask(where)[0] == 200 for _ in range(3))
        assert everything(client).partition(b"\r\n\r\n")[2] == body


def test_silent_clients_hold_up_nobody_and_the_oldest_make_room(listeners: HttpListeners, where: ListenAddress) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connect(where)) for _ in range(http_listeners.MOST_CLIENTS + 20)]
        for _ in range(5):
            assert ask(where)[0] == 200
        assert silent[0].recv(1) == b""
        assert listeners.clients <= http_listeners.MOST_CLIENTS
    wait_until(lambda: listeners.clients == 0, "all clients are gone")


def test_silent_and_dribbling_clients_are_ended_in_time(
    listeners: HttpListeners, where: ListenAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_listeners, "PATIENCE", 0.2)
    with connect(where) as silent, connect(where) as dribbling:

        def dribble() -> bool:
            with contextlib.suppress(OSError):
                dribbling.sendall(b"a")
            return listeners.clients == 0

        wait_until(lambda: listeners.clients > 0, "the server has seen them")
        wait_until(dribble, "both are gone, though one sends something all the time")
        assert silent.recv(1) == b""


def test_many_at_once_are_answered_without_more_threads(listeners: HttpListeners, where: ListenAddress) -> None:
    threads = threading.active_count()
    descriptors = open_descriptors()
    done: list[int] = []
    askers = [threading.Thread(target=lambda: done.extend(ask(where)[0] for _ in range(20))) for _ in range(20)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(PATIENCE)
    assert done == [200] * 400
    assert threading.active_count() == threads
    wait_until(lambda: listeners.clients == 0, "all clients are gone")
    assert open_descriptors() == descriptors


def test_it_goes_on_after_it_had_no_descriptors_left(listeners: HttpListeners, where: ListenAddress) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    clients = [socket.socket() for _ in range(3)]
    # The next descriptor would be the lowest free number, so this limit leaves none.
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        for client in clients:
            client.settimeout(PATIENCE)
            client.connect((str(where.address), where.port))
            client.sendall(b"GET /late HTTP/1.1\r\n\r\n")
        time.sleep(0.05)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for client in clients:
        with client:
            assert everything(client).endswith(b"GET /late")


def test_closing_ends_the_thread_and_gives_everything_back() -> None:
    threads, descriptors = threading.active_count(), open_descriptors()
    for _ in range(20):
        listeners, address = HttpListeners(), free_address()
        listeners.serve({address: echo})
        with connect(address):
            listeners.close()
        with pytest.raises(ConnectionRefusedError):
            connect(address)
    assert threading.active_count() == threads
    assert open_descriptors() == descriptors


def test_listeners_may_change_under_load(listeners: HttpListeners, where: ListenAddress) -> None:
    others = [free_address() for _ in range(5)]
    stop, failures = threading.Event(), list[BaseException]()

    def load() -> None:
        while not stop.is_set():
            try:
                assert ask(where)[0] == 200
            except BaseException as error:
                failures.append(error)
                raise

    asker = threading.Thread(target=load)
    asker.start()
    try:
        for round_ in range(100):
            chosen = {other: echo for index, other in enumerate(others) if (round_ + index) % 3}
            listeners.serve({where: echo, **chosen})
    finally:
        stop.set()
        asker.join(PATIENCE)
    assert failures == []
