"""Signals during the demo are noticed where it is safe, and only a third one breaks off at once."""

import os
import signal
import threading

import pytest

from kproxy_core.cli.demo.interruption import Interrupted, Interruption


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_told_at_the_next_check_and_not_before(number: int) -> None:
    with Interruption() as interruption:
        interruption.check()
        os.kill(os.getpid(), number)
        with pytest.raises(Interrupted) as caught:
            interruption.check()
    assert caught.value.status == 128 + number


def test_a_signal_ends_a_wait() -> None:
    with Interruption() as interruption:
        sender = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
        sender.start()
        with pytest.raises(Interrupted):
            interruption.sleep(60)
        sender.join()


def test_handlers_are_given_back() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with Interruption():
        assert signal.getsignal(signal.SIGTERM) != before[signal.SIGTERM]
    assert {number: signal.getsignal(number) for number in before} == before


def test_the_third_signal_breaks_off() -> None:
    with Interruption() as interruption:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted):
            interruption.check()


def test_a_wait_tells_how_long_it_took_or_that_it_was_in_vain() -> None:
    answers = iter([False, False, True])
    with Interruption() as interruption:
        assert interruption.wait_until(lambda: next(answers), 60) is not None
        assert interruption.wait_until(lambda: False, 0.02) is None


def test_waiting_for_a_signal_takes_it_as_seen() -> None:
    with Interruption() as interruption:
        os.kill(os.getpid(), signal.SIGINT)
        interruption.wait_for_signal()
        interruption.check()
