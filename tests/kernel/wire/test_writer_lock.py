"""One writer per network namespace, between real processes, and a holder that rubbish and stalling cannot harm."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kproxy_core.kernel import namespaces, writer_lock
from kproxy_core.kernel.writer_lock import ControlError, LockedError, NoHolderError, WriterLock

pytestmark = pytest.mark.kernel

HOLDER = """
import select
from kproxy_core.kernel.writer_lock import WriterLock

stopped = False

def answer(request):
    global stopped
    stopped = stopped or request["ask"] == "stop"
    return {"mode": "nftables", "asked": request["ask"], "big": "x" * int(request.get("size", 0))}

with WriterLock() as lock:
    print("held", flush=True)
    while not stopped:
        select.select([lock], [], [])
        lock.handle(answer)
    lock.handle(answer)
"""


@contextlib.contextmanager
def other_process(namespace: int) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock in the namespace."""
    with namespaces.entered(namespace):
        process = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def served(lock: WriterLock) -> Iterator[list[Mapping[str, Any]]]:
    """Answer in a thread; yields the requests that came."""
    asked: list[Mapping[str, Any]] = []
    ending = threading.Event()

    def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(request)
        return {"answer": request["ask"]}

    def work() -> None:
        while not ending.is_set():
            select.select([lock], [], [], 0.05)
            lock.handle(answer)

    thread = threading.Thread(target=work)
    thread.start()
    yield asked
    ending.set()
    thread.join()


def raw_client(namespace: int) -> socket.socket:
    with namespaces.entered(namespace):
        client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect(b"\0kproxy")
    return client


def test_one_holder_per_namespace(namespace: int) -> None:
    elsewhere = namespaces.create()
    assert writer_lock.holder(namespace=namespace) is None
    with WriterLock(namespace=namespace):
        with pytest.raises(LockedError, match=f"process {os.getpid()} of user {os.geteuid()}") as caught:
            WriterLock(namespace=namespace)
        assert caught.value.holder == writer_lock.holder(namespace=namespace)
        with WriterLock(namespace=elsewhere), WriterLock(namespace=namespace, name="another"):
            pass
    with WriterLock(namespace=namespace):
        pass
    os.close(elsewhere)


def test_another_process_is_named_and_asked(namespace: int) -> None:
    with other_process(namespace) as process:
        with pytest.raises(LockedError) as caught:
            WriterLock(namespace=namespace)
        assert caught.value.holder is not None
        assert caught.value.holder.pid == process.pid
        answer = writer_lock.ask({"ask": "status"}, namespace=namespace)
        assert answer == {"mode": "nftables", "asked": "status", "big": ""}
        answer = writer_lock.ask({"ask": "status", "size": 900_000}, namespace=namespace)
        assert len(answer["big"]) == 900_000
        assert writer_lock.ask({"ask": "stop"}, namespace=namespace)["asked"] == "stop"
        assert writer_lock.wait_until_free(timeout=10, namespace=namespace)
        assert process.wait(10) == 0
        with WriterLock(namespace=namespace):
            pass


def test_waiting_ends_when_the_holder_is_killed(namespace: int) -> None:
    with other_process(namespace) as process:
        assert not writer_lock.wait_until_free(timeout=0, namespace=namespace)
        waiting = threading.Timer(0.1, process.send_signal, [signal.SIGKILL])
        waiting.start()
        assert writer_lock.wait_until_free(timeout=10, namespace=namespace)
        waiting.join()
        with WriterLock(namespace=namespace):
            pass
    assert writer_lock.wait_until_free(namespace=namespace)


def test_nobody_to_ask(namespace: int) -> None:
    with pytest.raises(NoHolderError):
        writer_lock.ask({"ask": "status"}, namespace=namespace)


def test_a_holder_that_does_not_answer(namespace: int) -> None:
    with WriterLock(namespace=namespace), pytest.raises(ControlError, match=f"process {os.getpid()}.*does not answer"):
        writer_lock.ask({"ask": "status"}, timeout=0.1, namespace=namespace)


def test_a_holder_that_takes_no_more_calls(namespace: int) -> None:
    with WriterLock(namespace=namespace), contextlib.ExitStack() as stack:
        with contextlib.suppress(BlockingIOError):
            for _ in range(100):
                with namespaces.entered(namespace):
                    client = stack.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(b"\0kproxy")
        with pytest.raises(ControlError, match="no more calls"):
            writer_lock.ask({"ask": "status"}, namespace=namespace)
        found = writer_lock.holder(namespace=namespace)
        assert found is not None
        assert found.pid == 0
        assert not writer_lock.wait_until_free(timeout=0.1, namespace=namespace)


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\n",
        b"status\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"[1, 2]\n",
        b"{}\n",
        b'{"ask": 7}\n',
        b'{"ask": "status"\n',
        b"\xff\xfe\0\0\n",
        b"[" * 4000 + b"\n",
        b"x" * 5000,
        b'{"ask": "' + b"x" * 100_000 + b'"}\n',
    ],
)
def test_rubbish_is_refused_and_hung_up_on(rubbish: bytes, namespace: int) -> None:
    with WriterLock(namespace=namespace) as lock, served(lock) as asked:
        with raw_client(namespace) as client:
            with contextlib.suppress(BrokenPipeError):
                client.sendall(rubbish)
            received = client.recv(1000)
            assert "error" in json.loads(received)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1000) == b""
        assert asked == []
        assert writer_lock.ask({"ask": "status"}, namespace=namespace) == {"answer": "status"}


def test_several_requests_on_one_line_of_talk(namespace: int) -> None:
    with WriterLock(namespace=namespace) as lock, served(lock), raw_client(namespace) as client:
        client.sendall(b'{"ask": "a"}\n{"ask": "b"}\n{"ask"')
        client.sendall(b': "c"}\n')
        lines = client.makefile("rb")
        assert [json.loads(lines.readline())["answer"] for _ in range(3)] == ["a", "b", "c"]
        lines.close()


def test_stalled_clients_do_not_keep_others_out(namespace: int) -> None:
    with WriterLock(namespace=namespace) as lock, served(lock), contextlib.ExitStack() as stack:
        stalled = []
        for _ in range(40):
            client = stack.enter_context(raw_client(namespace))
            client.sendall(b'{"ask": "sta')
            stalled.append(client)
            assert writer_lock.ask({"ask": "status"}, namespace=namespace) == {"answer": "status"}
        assert stalled[0].recv(10) == b""


def test_a_client_that_never_reads_does_not_block_the_holder(namespace: int) -> None:
    big = {"text": "x" * 500_000}
    with WriterLock(namespace=namespace) as lock, raw_client(namespace) as client:
        client.sendall(b'{"ask": "status"}\n' * 200)
        calls = []
        for _ in range(50):
            lock.handle(lambda request: calls.append(request) or big)  # type: ignore[func-returns-value]
        assert len(calls) == 1


def test_large_answers_to_a_slow_reader_arrive_whole_and_in_order(namespace: int) -> None:
    def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"answer": request["ask"], "text": request["ask"] * 700_000}

    received = b""
    with WriterLock(namespace=namespace) as lock, raw_client(namespace) as client:
        client.sendall(b"".join(b'{"ask": "%d"}\n' % number for number in range(4)))
        client.setblocking(False)
        for _ in range(2000):
            lock.handle(answer)
            with contextlib.suppress(BlockingIOError):
                received += client.recv(50_000)
            if received.count(b"\n") == 4:
                break
    answers = [json.loads(line) for line in received.splitlines()]
    assert [(found["answer"], len(found["text"])) for found in answers] == [(str(number), 700_000) for number in range(4)]


def test_a_client_that_vanishes_is_forgotten(namespace: int) -> None:
    with WriterLock(namespace=namespace) as lock:
        for _ in range(50):
            with raw_client(namespace) as client:
                client.sendall(b'{"ask": "status"}\n')
            for _ in range(4):
                lock.handle(lambda _: {"text": "x" * 500_000})
        assert not select.select([lock], [], [], 0)[0]


def test_a_fault_in_the_answer_comes_through(namespace: int) -> None:
    def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ZeroDivisionError

    with WriterLock(namespace=namespace) as lock, raw_client(namespace) as client:
        client.sendall(b'{"ask": "status"}\n')
        lock.handle(answer)
        with pytest.raises(ZeroDivisionError):
            lock.handle(answer)


STRANGER = """
import os, socket
os.setgid(65534)
os.setuid(65534)
client = socket.socket(socket.AF_UNIX)
client.settimeout(10)
client.connect(b"\\0kproxy")
try:
    client.sendall(b'{"ask": "stop"}\\n')
    print(len(client.recv(100)))
except (BrokenPipeError, ConnectionResetError):
    print(0)
"""


def test_other_users_are_not_answered(namespace: int, nobody: int) -> None:
    with WriterLock(namespace=namespace) as lock, served(lock) as asked:
        with namespaces.entered(namespace):
            done = subprocess.run([sys.executable, "-c", STRANGER], capture_output=True, text=True, check=False)
        assert done.stdout == "0\n", done.stderr
        assert asked == []


SQUATTER = """
import os, socket, time
os.setgid(65534)
os.setuid(65534)
holder = socket.socket(socket.AF_UNIX)
holder.bind(b"\\0kproxy")
holder.listen()
print("held", flush=True)
time.sleep(60)
"""


def test_a_stranger_with_the_lock_is_named_and_not_believed(namespace: int, nobody: int) -> None:
    with namespaces.entered(namespace):
        process = subprocess.Popen([sys.executable, "-c", SQUATTER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match=f"process {process.pid} of user {nobody}"):
            WriterLock(namespace=namespace)
        with pytest.raises(ControlError, match=f"user {nobody}"):
            writer_lock.ask({"ask": "status"}, namespace=namespace)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
