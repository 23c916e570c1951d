"""Fingerprints: the same for the same call, different for all others."""

import pytest

from treadle.tools import fingerprint, signature


def test_the_order_of_keys_does_not_count():
    assert fingerprint("f", {"a": 1, "b": {"c": 1, "d": 2}}) == fingerprint(
        "f", {"b": {"d": 2, "c": 1}, "a": 1}
    )


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("g", {"a": 1}),
        ("f", {"a": 2}),
        ("f", {"a": "1"}),
        ("f", {"a": True}),
        ("f", {"a": [1]}),
        ("f", {}),
        ("f", '{"a": 1}'),
        ("f", ""),
    ],
)
def test_another_name_or_other_arguments_have_another_fingerprint(name, arguments):
    assert fingerprint(name, arguments) != fingerprint("f", {"a": 1})


def test_the_order_of_a_list_counts():
    assert fingerprint("f", {"a": [1, 2]}) != fingerprint("f", {"a": [2, 1]})


def test_text_that_cannot_be_encoded_has_a_fingerprint():
    assert fingerprint("f", "\ud800") != fingerprint("f", "\ud801")
    assert fingerprint("\ud800", {"a": "\ud800"}) != fingerprint("f", {"a": "\ud800"})


def test_the_signature_of_an_iteration_is_of_a_multiset():
    assert signature(["a", "b"]) == signature(["b", "a"])
    assert signature(["a", "a"]) != signature(["a"])
    assert signature(["a", "b"]) != signature(["a", "c"])
    assert signature(["a"]) == "a"
    assert signature(("a", "b")) == signature(["a", "b"])
