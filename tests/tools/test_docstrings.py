"""Reading descriptions from docstrings of three styles."""

import pytest

from treadle.tools import tool
from treadle.tools.docstrings import read_docstring

GOOGLE = """Find a thing.

    It looks everywhere.

    Args:
        query: what to look for,
            in several words.
        limit (int, optional): how many.
        **more: whatever else.

    Returns:
        what it finds: a list.

    Raises:
        KeyError: it is not there.
    """

SPHINX = """Find a thing.

    It looks everywhere.

    :param query: what to look for,
        in several words.
    :param int limit: how many.
    :param more: whatever else.
    :returns: what it finds.
    :raises KeyError: it is not there.
    """

NUMPY = """Find a thing.

    It looks everywhere.

    Parameters
    ----------
    query : str
        what to look for,
        in several words.
    limit : int, optional
        how many.
    more
        whatever else.

    Returns
    -------
    list
        what it finds.
    """


@pytest.mark.parametrize("text", [GOOGLE, SPHINX, NUMPY], ids=["google", "sphinx", "numpy"])
def test_every_style_has_the_same_outcome(text):
    description, arguments = read_docstring(text)
    assert description == "Find a thing.\n\nIt looks everywhere."
    assert arguments == {
        "query": "what to look for, in several words.",
        "limit": "how many.",
        "more": "whatever else.",
    }


@pytest.mark.parametrize("text", [GOOGLE, SPHINX], ids=["google", "sphinx"])
def test_a_paragraph_after_the_arguments_describes_none_of_them(text):
    start, _, _ = text.partition("    Returns" if text is GOOGLE else "    :returns")
    _, arguments = read_docstring(f"{start.rstrip()}\n\n    It is slow.\n    ")
    assert arguments["more"] == "whatever else."


@pytest.mark.parametrize("head", ["Args", "Arguments", "Keyword Args", "Look up.\n\n    Args"])
@pytest.mark.parametrize("end", ["", "\n    Returns:\n        The forecast.\n    "])
def test_a_docstring_may_begin_with_the_arguments(head, end):
    text = f"{head}:\n        city: The city.\n        days: The days.\n    {end}"
    assert read_docstring(text)[1] == {"city": "The city.", "days": "The days."}
    more = "Do.\n\nArgs:\n    city: The city.\n\nKeyword Args:\n    days: The days."
    assert read_docstring(more)[1] == {"city": "The city.", "days": "The days."}


def test_types_with_brackets_are_not_part_of_a_description():
    text = "Do.\n\nArgs:\n    a (dict(x=1)): first.\n    b (Callable[[int], (str)]): second."
    assert read_docstring(text)[1] == {"a": "first.", "b": "second."}


def test_arguments_that_numpy_describes_together_have_the_same_description():
    text = "Do.\n\nParameters\n----------\na, b : int\n    Both,\n    really.\nc\n    One."
    assert read_docstring(text)[1] == {"a": "Both, really.", "b": "Both, really.", "c": "One."}


@pytest.mark.parametrize("text", [None, "", "   \n  "])
def test_an_empty_docstring_has_no_descriptions(text):
    assert read_docstring(text) == ("", {})


def test_text_with_colons_is_not_a_section():
    text = "Convert: from one to another.\n\nNote: this is text, and so is\nthis: line."
    assert read_docstring(text) == (text, {})


@pytest.mark.parametrize("head", ["Args", "Arguments", "Parameters", "Params", "args"])
def test_the_section_of_arguments_may_have_any_usual_name(head):
    assert read_docstring(f"Do.\n\n{head}:\n    a: first.")[1] == {"a": "first."}


@pytest.mark.parametrize("head", ["Returns", "Yields", "Raises", "Example", "Examples", "Note"])
def test_other_sections_end_the_description(head):
    text = f"Do.\n\n{head}:\n    x: y.\n\nArgs:\n    a: first."
    assert read_docstring(text) == ("Do.", {"a": "first."})


def test_an_argument_without_a_description_is_left_out():
    assert read_docstring("Do.\n\nArgs:\n    a:\n    b: second.")[1] == {"b": "second."}


def test_the_descriptions_reach_the_schema():
    def find(query: str, limit: int = 5): ...

    find.__doc__ = GOOGLE
    made = tool(find)
    assert made.description == "Find a thing.\n\nIt looks everywhere."
    properties = made.input_schema["properties"]
    assert properties["query"]["description"] == "what to look for, in several words."


@pytest.mark.parametrize("field", ["param", "parameter", "arg", "argument", "key", "keyword"])
def test_a_field_of_sphinx_may_have_any_of_its_names(field):
    assert read_docstring(f"Do.\n\n:{field} a: first.")[1] == {"a": "first."}


@pytest.mark.parametrize("line", ["Returns: it", "Raises: ValueError", "Yields: each"])
def test_a_section_in_one_line_belongs_to_no_argument(line):
    assert read_docstring(f"Do.\n\nArgs:\n    a: first.\n{line}")[1] == {"a": "first."}


def test_numpy_marks_further_arguments_with_stars():
    text = "Do.\n\nParameters\n----------\na : int\n    first.\n**more : dict\n    others."
    assert read_docstring(text)[1] == {"a": "first.", "more": "others."}
