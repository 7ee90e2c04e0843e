"""What was read from the kernel becomes a program on which wanted fragments can be put one by one."""

from kproxy_core.engine.adopt import UNATTRIBUTED, adopt, is_unchanged
from kproxy_core.model.names import ServicePortKey
from kproxy_core.program.delta import diff_ports
from kproxy_core.program.program import Fragment, Program, link, objects, replace
from kproxy_core.testing.sketch import port_key

A, B = port_key("n/a"), port_key("n/b")
SCAFFOLD = {"table": 0}


def read(common: dict[str, int], **own: dict[str, int]) -> Program[str, int]:
    names = {"a": A, "b": B}
    return Program(fragments={names[name]: Fragment(id=1, own=keys) for name, keys in own.items()}, common=common)


def made(**own: dict[str, int]) -> dict[ServicePortKey, Fragment[str, int]]:
    names = {"a": A, "b": B}
    return {names[name]: Fragment(id=1, own=keys, shared={"pick": 1}) for name, keys in own.items()}


def test_adopting_changes_nothing_about_what_there_is() -> None:
    observed = read({"table": 0, "pick": 1, "rubbish": 9}, a={"x": 1}, b={"y": 2})
    assert objects(adopt(observed, {}, SCAFFOLD)) == objects(observed)


def test_what_is_just_as_we_made_it_is_ours_again() -> None:
    ours = made(a={"x": 1})
    adopted = adopt(read({"table": 0, "pick": 1}, a={"x": 1}), ours, SCAFFOLD)
    assert adopted.fragments[A] is ours[A]
    assert UNATTRIBUTED not in adopted.fragments
    assert adopted.uses == {"pick": 1}


def test_what_was_changed_is_not() -> None:
    ours = made(a={"x": 1})
    assert adopt(read({"table": 0, "pick": 1}, a={"x": 2}), ours, SCAFFOLD).fragments[A] is not ours[A]
    assert adopt(read({"table": 0, "pick": 7}, a={"x": 1}), ours, SCAFFOLD).fragments[A] is not ours[A]
    assert adopt(read({"table": 0}, a={"x": 1}), ours, SCAFFOLD).fragments[A] is not ours[A]


def test_objects_that_nobody_is_known_to_need_are_kept_as_long_as_a_read_fragment_is() -> None:
    adopted = adopt(read({"table": 0, "pick": 1, "rubbish": 9}, a={"x": 2}, b={"y": 2}), made(a={"x": 1}), SCAFFOLD)
    assert set(adopted.fragments[UNATTRIBUTED].shared) == {"pick", "rubbish"}


def test_also_those_that_one_of_ours_uses() -> None:
    adopted = adopt(read({"table": 0, "pick": 1}, a={"x": 2}, b={"y": 2}), made(b={"y": 2}), SCAFFOLD)
    assert adopted.uses["pick"] == 2
    assert diff_ports(adopted, replace(adopted, {B: None}), {B}).removed == {"y": 2}


def test_when_all_is_ours_only_rubbish_is_unattributed() -> None:
    adopted = adopt(read({"table": 0, "pick": 1, "rubbish": 9}, a={"x": 1}), made(a={"x": 1}), SCAFFOLD)
    assert set(adopted.fragments[UNATTRIBUTED].shared) == {"rubbish"}


def test_wanted_fragments_replace_adopted_ones_one_by_one() -> None:
    observed = read({"table": 0, "pick": 1, "rubbish": 9}, a={"x": 2}, b={"y": 2})
    wanted = made(a={"x": 1}, b={"y": 1})
    program = adopt(observed, {}, SCAFFOLD)
    kernel = objects(observed)
    for port, fragment in (*wanted.items(), (UNATTRIBUTED, None)):
        after = replace(program, {port: fragment})
        delta = diff_ports(program, after, {port})
        assert not delta.added
        kernel = {key: value for key, value in kernel.items() if key not in delta.removed}
        kernel.update({key: new for key, (_, new) in delta.changed.items()})
        program = after
    assert kernel == objects(link(wanted, SCAFFOLD)) == objects(program)


def test_what_was_shared_and_belongs_to_the_scaffold_now_is_not_kept_with_fragments() -> None:
    observed = Program(
        fragments={A: Fragment(id=1, own={"x": 1}, shared={"table": 0, "pick": 1})}, common={"table": 0, "pick": 1}
    )
    adopted = adopt(observed, {}, SCAFFOLD)
    assert "table" not in adopted.uses
    assert set(adopted.fragments[A].shared) == {"pick"}


def test_a_read_program_is_unchanged_when_every_object_is_whatever_holds_the_unattributed_ones() -> None:
    ours = link(made(a={"x": 1}), SCAFFOLD)
    assert is_unchanged(read({"table": 0, "pick": 1}, a={"x": 1}), ours)
    assert not is_unchanged(read({"table": 0, "pick": 1}, a={"x": 2}), ours)
    assert not is_unchanged(read({"table": 0, "pick": 1}), ours)
    assert not is_unchanged(read({"table": 0, "pick": 1}, a={"x": 1}, b={"y": 1}), ours)
    assert not is_unchanged(read({"table": 0}, a={"x": 1}), ours)
    held = adopt(read({"table": 0, "pick": 1, "rubbish": 9}, a={"x": 2}), {}, SCAFFOLD)
    assert UNATTRIBUTED in held.fragments
    assert is_unchanged(read({"table": 0, "pick": 1, "rubbish": 9}, a={"x": 2}), held)


def test_what_is_in_between_two_fragments_keeps_what_either_needs() -> None:
    observed = read({"table": 0, "pick": 1, "choose": 2, "rubbish": 9}, a={"x": 2})
    adopted = adopt(observed, made(a={"x": 1}), SCAFFOLD, {A: {"pick", "choose", "absent"}})
    assert adopted.fragments[A].shared == {"pick": 1, "choose": 2}
    assert set(adopted.fragments[UNATTRIBUTED].shared) == {"rubbish"}
    assert objects(adopted) == objects(observed)
