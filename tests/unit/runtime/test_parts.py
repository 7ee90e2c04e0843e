"""The parts of the runtime that need no loop: inbox, logs, assembly, addresses."""

import json
import logging
import select
import sys
import threading
from ipaddress import ip_address

import pytest

from kproxy_core.config.settings import Settings
from kproxy_core.kernel.addresses import NodeAddress
from kproxy_core.model.addresses import parse_address
from kproxy_core.model.names import Protocol
from kproxy_core.model.state import NodeContext, ServicePort
from kproxy_core.plugin.errors import ContractError
from kproxy_core.runtime.addresses import FixedAddresses, usable
from kproxy_core.runtime.assembly import program_for
from kproxy_core.runtime.control import Control
from kproxy_core.runtime.logs import LOGGER, JsonFormatter, TextFormatter, configure_logging
from kproxy_core.runtime.sources import Inbox
from kproxy_core.testing.memory_backend import MemoryBackend, MemoryFragment
from kproxy_core.testing.sketch import NODE, listed, node, port_key, put, service, slice_of

WEB = service("shop/web", "10.96.0.10")


def is_readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def test_an_inbox_is_readable_as_long_as_there_is_something_in_it() -> None:
    inbox = Inbox()
    assert not is_readable(inbox.fileno())
    inbox.put(put(WEB))
    inbox.put(put(node("192.0.2.1")))
    assert is_readable(inbox.fileno())
    assert inbox.take() == (*put(WEB), *put(node("192.0.2.1")))
    assert not is_readable(inbox.fileno())
    assert inbox.take() == ()
    inbox.close()
    inbox.close()


def test_what_is_put_into_a_closed_inbox_is_discarded() -> None:
    inbox = Inbox()
    inbox.close()
    inbox.put(put(WEB))


def test_nothing_put_in_by_several_threads_is_lost() -> None:
    inbox, count = Inbox(), 500

    def deliver() -> None:
        for _ in range(count):
            inbox.put(put(WEB))

    threads = [threading.Thread(target=deliver) for _ in range(4)]
    for thread in threads:
        thread.start()
    taken = 0
    while taken < 4 * count:
        assert select.select([inbox.fileno()], [], [], 20)[0]
        taken += len(inbox.take())
    for thread in threads:
        thread.join()
    assert taken == 4 * count
    inbox.close()


def test_a_closed_control_may_still_be_posted_to() -> None:
    control = Control()
    control.close()
    control.check()
    control.stop()
    assert control.stopping


def test_json_lines_carry_what_was_given_as_extra_and_the_exception() -> None:
    try:
        raise ValueError("oops")
    except ValueError:
        record = logging.getLogger(LOGGER).makeRecord(
            LOGGER, logging.ERROR, "file", 1, "it %s", ("broke",), sys.exc_info(), extra={"service": "shop/web"}
        )
    line = json.loads(JsonFormatter().format(record))
    assert (line["level"], line["message"], line["service"]) == ("error", "it broke", "shop/web")
    assert "ValueError: oops" in line["exception"]
    assert line["time"].endswith("+00:00")
    assert set(line) == {"time", "level", "message", "service", "exception"}


@pytest.mark.parametrize(("log_format", "start"), [("text", "20"), ("json", '{"time":')])
def test_logs_go_to_standard_error_once(log_format: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger(LOGGER)
    before = (logger.handlers, logger.level, logger.propagate)
    try:
        configure_logging("text")
        configure_logging("json" if log_format == "json" else "text")
        logger.info("hello")
        logger.debug("not this")
    finally:
        logger.handlers, logger.level, logger.propagate = before
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert output.err.startswith(start)
    assert "hello" in output.err


def test_a_hostile_name_neither_forges_a_line_of_the_log_nor_steers_the_terminal() -> None:
    record = logging.getLogger(LOGGER).makeRecord(LOGGER, logging.ERROR, "file", 1, "%s odd", ("a\nfake\x1b[31m",), None)
    assert TextFormatter("%(levelname)s %(message)s").format(record) == "ERROR a\n  fake\\x1b[31m odd"


def test_a_program_is_made_without_a_kernel_and_before_everything_is_listed() -> None:
    changes = put(WEB, slice_of("shop/web", "10.244.1.1"))
    state, program = program_for(MemoryBackend(), changes, Settings(node_name=NODE), ())
    key = port_key("shop/web")
    assert list(state.ports) == [key]
    assert program.fragments[key].id == 1
    assert ("pick", 1) in program.common
    assert ("node", "local pods") in program.common


class Broken(MemoryBackend):
    def compile(self, port: ServicePort, node: NodeContext, previous: MemoryFragment | None, fresh_id: int) -> MemoryFragment:
        raise ZeroDivisionError("oops")


def test_a_service_that_a_mode_cannot_render_is_named() -> None:
    with pytest.raises(ContractError, match=r"shop/web/UDP .*oops"):
        program_for(Broken(), listed(service("shop/web", "10.96.0.10", protocol=Protocol.UDP)), Settings(), ())


def test_addresses_that_are_not_usable_yet_are_left_out_and_each_counts_once() -> None:
    def seen(text: str, link: str = "eth0", *, ready: bool = True) -> NodeAddress:
        return NodeAddress(address=ip_address(text), prefix_length=24, link=link, scope=0, flags=0, usable=ready)

    found = usable([seen("192.0.2.1"), seen("2001:db8::1", ready=False), seen("192.0.2.1", "eth1"), seen("10.0.0.1")])
    assert found == (parse_address("192.0.2.1"), parse_address("10.0.0.1"))


def test_fixed_addresses_are_told_once() -> None:
    feed = FixedAddresses([parse_address("192.0.2.1")])
    assert feed.poll() == (parse_address("192.0.2.1"),)
    assert feed.poll() is None
