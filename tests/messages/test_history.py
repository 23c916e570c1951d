"""The history is immutable and append-only, and returns copies."""

import copy
import json
import pickle

import pytest

from treadle.messages import History


def said(text):
    return {"role": "user", "content": text}


def calling(call_id):
    return {"role": "assistant", "tool_calls": [{"id": call_id}]}


def contents(history):
    return [message["content"] for message in history]


def test_append_returns_a_new_history_and_does_not_change_the_first():
    first = History([said("a")])
    second = first.append(said("b"), said("c"))
    assert contents(first) == ["a"]
    assert contents(second) == ["a", "b", "c"]
    assert (len(first), len(second)) == (1, 3)


def test_a_longer_history_shares_the_earlier_messages():
    """No message is copied again: an iteration costs the same whatever came before it."""
    first = History([said("a")])
    assert first.append() == first
    assert first.append(said("b"))[0] is first[0]


def test_two_branches_do_not_see_each_other():
    root = History([said("a")])
    left, right = root.append(said("l")), root.append(said("r"))
    further = left.append(said("l2"))
    assert contents(right) == ["a", "r"]
    assert contents(further) == ["a", "l", "l2"]
    assert contents(left.append(said("l3"))) == ["a", "l", "l3"]
    assert contents(root) == ["a"]
    for history in (root, left, right, further):
        assert history.for_model() == history.to_list()


def test_it_is_a_sequence():
    history = History([said("a"), said("b"), said("c")])
    shorter = History([said("a"), said("b")])
    shorter.append(said("c"))
    assert shorter[-1]["content"] == "b"
    assert contents(history[1:]) == ["b", "c"]
    assert contents(shorter[:10]) == ["a", "b"]
    assert contents(reversed(history)) == ["c", "b", "a"]
    assert said("b") in history
    assert bool(History()) is False
    with pytest.raises(IndexError):
        shorter[2]


def test_it_is_equal_by_content_and_not_hashable():
    assert History([said("a")]) == History([]).append(said("a"))
    assert History([said("a")]) != History([said("b")])
    assert History([said("a")]) != [said("a")]
    with pytest.raises(TypeError, match="unhashable"):
        hash(History())


def test_the_repr_has_the_number_of_messages():
    assert repr(History([said("a")])) == "History(1 messages)"


def test_a_backend_that_changes_its_messages_does_not_change_the_history():
    history = History([{"role": "user", "content": [{"type": "text", "text": "a"}]}])
    sent = history.for_model()
    sent[0]["content"][0]["text"] = "broken"
    sent[0]["role"] = "system"
    sent.append(said("more"))
    assert history.to_list() == [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    assert len(history.for_model()) == 1
    assert len(history.append(said("b"))) == 2


def test_the_model_receives_only_the_messages_of_this_history():
    """Even if a longer history shares its log."""
    first = History([said("a")])
    first.append(said("b"))
    assert first.for_model() == [said("a")]


def test_to_list_returns_copies():
    history = History([{"role": "user", "content": [{"type": "text"}]}])
    kept = history.to_list()
    kept[0]["content"].clear()
    assert history[0]["content"] == [{"type": "text"}]


class TestReadOnly:
    """A message cannot be edited in place, at any depth; a copy of it is plain and can."""

    @pytest.fixture
    def message(self):
        part = {"type": "text", "text": "a"}
        return History([{"role": "user", "content": [part, {"type": "image"}]}])[0]

    @pytest.mark.parametrize(
        "edit",
        [
            lambda m: m.__setitem__("content", "b"),
            lambda m: m.__delitem__("content"),
            lambda m: m.__ior__({"content": "b"}),
            lambda m: m.update(content="b"),
            lambda m: m.setdefault("name", "Ann"),
            lambda m: m.pop("content"),
            lambda m: m.popitem(),
            lambda m: m.clear(),
            lambda m: m["content"].__setitem__(0, {}),
            lambda m: m["content"].__delitem__(0),
            lambda m: m["content"].__iadd__([{}]),
            lambda m: m["content"].__imul__(2),
            lambda m: m["content"].append({}),
            lambda m: m["content"].extend([{}]),
            lambda m: m["content"].insert(0, {}),
            lambda m: m["content"].pop(),
            lambda m: m["content"].remove({"type": "image"}),
            lambda m: m["content"].clear(),
            lambda m: m["content"].sort(key=str),
            lambda m: m["content"].reverse(),
            lambda m: m["content"][0].__setitem__("text", "b"),
            lambda m: m["content"][0].update(text="b"),
        ],
    )
    def test_every_edit_in_place_raises_and_changes_nothing(self, message, edit):
        before = json.dumps(message)
        with pytest.raises(
            TypeError, match=r"return a changed copy, as in ctx\.replace\(messages="
        ):
            edit(message)
        assert json.dumps(message) == before

    @pytest.mark.parametrize(
        "copied",
        [
            copy.copy,
            copy.deepcopy,
            lambda message: pickle.loads(pickle.dumps(message)),  # noqa: S301 - it is our own
            lambda message: json.loads(json.dumps(message)),
            lambda message: History([message]).to_list()[0],
        ],
    )
    def test_a_copy_is_plain_at_every_depth(self, message, copied):
        made = copied(message)
        assert made == message
        assert [type(made), type(made["content"]), type(made["content"][0])] == [dict, list, dict]
        made["content"][0]["text"] = "b"
        assert message["content"][0]["text"] == "a"

    @pytest.mark.parametrize(
        "copied", [lambda m: {**m}, dict, lambda m: m.copy(), lambda m: m | {}]
    )
    def test_a_shallow_copy_is_a_plain_dict_whose_parts_are_still_read_only(self, message, copied):
        made = copied(message)
        made["role"] = "system"
        assert (type(made), message["role"]) == (dict, "user")
        with pytest.raises(TypeError, match="read-only"):
            made["content"].append({})

    def test_slices_and_iteration_show_read_only_messages_too(self):
        history = History([said("a"), said("b")])
        for message in [*history, *history[:1], history[-1]]:
            with pytest.raises(TypeError, match="read-only"):
                message["content"] = "c"

    def test_a_message_is_shown_as_one_object_each_time(self):
        history = History([said("a")])
        assert history[0] is history[0] is next(iter(history))


def test_has_call_finds_the_ids_of_its_calls():
    history = History([said("a"), calling("c1")]).append(calling("c2"))
    assert history.has_call("c1")
    assert history.has_call("c2")
    assert not history.has_call("c3")
    assert not History([said("a"), {"role": "assistant", "tool_calls": None}]).has_call("c1")


class TestUnusedIds:
    """An id that no call of the history has: the wanted one, or that one with a number."""

    @pytest.mark.parametrize(
        ("wanted", "taken", "made"),
        [
            ("new", (), "new"),
            ("c1", (), "c1_2"),
            ("c1", ("c1_2",), "c1_3"),
            ("new", ("new",), "new_2"),
            ("new", ("new", "new_2", "new_3"), "new_4"),
        ],
    )
    def test_it_is_neither_in_the_history_nor_taken(self, wanted, taken, made):
        history = History([said("a"), calling("c1")])
        assert history.unused_id(wanted, dict.fromkeys(taken, 1)) == made

    def test_an_id_that_already_has_a_number_gets_another(self):
        assert History([calling("c1"), calling("c1_2")]).unused_id("c1", {}) == "c1_3"
        assert History([calling("c1_2")]).unused_id("c1_2", {}) == "c1_2_2"


def test_the_model_receives_copies_of_the_messages_or_those_that_are_given():
    made, copied = calling("c1"), calling("c1")
    history = History([said("a")]).extended([made], [copied])
    assert history.for_model()[1] is copied
    assert history.raw()[1] is made
    assert history.has_call("c1")
    assert History().extended([made]).for_model()[0] is not made


def test_a_message_is_copied_only_once():
    """An iteration costs the same whatever came before it."""
    copied = []

    class Counted(dict):
        def items(self):
            copied.append(1)
            return super().items()

    history = History([Counted(said("a"))])
    for _ in range(50):
        history = history.append(said("b"))
        history.for_model()
    assert len(copied) == 1
    assert len(history) == 51
