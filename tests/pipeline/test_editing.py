"""Edits: new pipelines made of existing ones."""

import pytest

from treadle.pipeline import Pipeline, PipelineError, done, embed, goto_point, stage, switch
from treadle.pipeline.streams import StreamPipeline, dead_end, plug_with


def a(item):
    return f"{item}a"


def b(item):
    return f"{item}b"


def c(item):
    return f"{item}c"


def x(item):
    return f"{item}x"


def y(item):
    return f"{item}y"


ABC = Pipeline(a, b, c)


def same(inner, original):
    return inner


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda p: p.insert_before("a", x, y), "xyabc"),
        (lambda p: p.insert_before("c", [x]), "abxc"),
        (lambda p: p.insert_after("c", x, y), "abcxy"),
        (lambda p: p.insert_after("b", x), "abxc"),
        (lambda p: p.insert_after("b"), "abc"),
        (lambda p: p.replace("b", x, y), "axyc"),
        (lambda p: p.replace("b", stage(x, name="b")), "axc"),
        (lambda p: p.without("b"), "ac"),
        (lambda p: p.without("a", "c"), "b"),
        (lambda p: p.without(), "abc"),
    ],
)
def test_an_edit_returns_a_new_pipeline_and_does_not_change_the_old_one(runner, edit, expected):
    assert runner.run(edit(ABC), "") == expected
    assert runner.run(ABC, "") == "abc"


def test_an_unknown_name_is_an_error_that_lists_the_names():
    with pytest.raises(PipelineError, match="by its name, a text, not Stage"):
        ABC.replace(stage(b), x)
    for edit in (
        lambda: ABC.insert_before("d", x),
        lambda: ABC.insert_after("d", x),
        lambda: ABC.replace("d", x),
        lambda: ABC.without("a", "d"),
    ):
        with pytest.raises(PipelineError, match="no component 'd'; known are a, b, c"):
            edit()


def test_the_new_pipeline_is_checked():
    needs = Pipeline(stage(a, provides=["k"]), stage(b, requires=["k"]))
    with pytest.raises(PipelineError, match="'b' requires k"):
        needs.without("a")
    with pytest.raises(PipelineError, match="two components named 'c'"):
        ABC.insert_after("a", c)


def test_the_options_of_the_pipeline_are_kept(runner):
    events = []
    pipeline = Pipeline(
        stage(a, requires=["k"]),
        b,
        until=lambda item: item.endswith("b"),
        item=str,
        given=["k"],
        on_stage=[events.append],
    )
    edited = pipeline.insert_after("b", c)
    assert runner.run(edited, "") == "ab"
    assert len(events) == 4
    with pytest.raises(Exception, match="expected str"):
        runner.run(edited.replace("b", lambda item: 1), "")


class TestNested:
    PIPELINE = StreamPipeline(
        switch(str.isupper, {True: [a], False: [b, switch(len, {0: [], 1: c})]}, name="case"),
        plug_with((str, same), [stage(x, "inner")], name="plug"),
        embed(Pipeline(stage(y, "part"), embed(Pipeline(stage(y, "deep")), "two")), "one"),
    )

    @pytest.mark.parametrize(
        ("name", "item", "expected"),
        [
            ("a", "Q", "Q!xyy"),
            ("c", "", "b!xyy"),
            ("plug/inner", "Q", "Qa!yy"),
            ("inner", "Q", "Qa!yy"),
            ("one.part", "Q", "Qax!y"),
            ("one.two.deep", "Q", "Qaxy!"),
            ("deep", "Q", "Qaxy!"),
            ("one.two", "Q", "Qaxy!"),
            ("plug", "Q", "Qa!yy"),
        ],
    )
    def test_a_component_is_found_at_any_depth(self, runner, name, item, expected):
        edited = self.PIPELINE.replace(name, stage(lambda item: f"{item}!", "mark"))
        assert runner.run(edited, item) == expected

    def test_a_component_is_inserted_inside_an_embedded_pipeline(self):
        edited = self.PIPELINE.insert_after("one.part", stage(a, "more"))
        embedded = edited.components[-1].parts[""]
        assert [one.name for one in embedded] == ["part", "more", "two"]
        assert edited.without("one.more").run_sync("Q") == "Qaxyy"

    def test_a_component_may_be_removed_together_with_the_one_around_it(self):
        assert self.PIPELINE.without("one", "one.part", "plug/inner").run_sync("Q") == "Qa"

    def test_unedited_components_are_the_same_objects(self):
        edited = self.PIPELINE.without("plug")
        assert edited.components[-1] is self.PIPELINE.components[-1]


class TestNames:
    def test_generated_names_are_numbered_as_in_errors(self, runner):
        pipeline = StreamPipeline(
            done(lambda item: item == "1"), a, done(lambda item: item == "2a"), b, dead_end()
        )
        assert pipeline.names == ("done", "a", "done_2", "b", "dead_end")
        edited = pipeline.without("done_2", "dead_end")
        assert [runner.run(edited, item) for item in ("1", "2")] == ["1", "2ab"]
        assert edited.without("done").names == ("a", "b")
        assert pipeline.without("done", "done_2").names == ("a", "b", "dead_end")

    def test_a_short_name_must_be_unique(self):
        pipeline = StreamPipeline(
            embed(Pipeline(a), "one"), embed(Pipeline(a), "two"), plug_with((str, same), a, "p")
        )
        with pytest.raises(PipelineError, match=r"several components 'a': 'one.a', 'two.a', 'p/a'"):
            pipeline.without("a")
        assert pipeline.without("two.a").run_sync("") == "aa"

    def test_full_names_take_precedence_over_short_names(self, runner):
        pipeline = Pipeline(a, embed(Pipeline(a), "one"))
        assert runner.run(pipeline.replace("a", x), "") == "xa"

    def test_names_of_components_take_precedence_over_points(self, runner):
        pipeline = Pipeline(goto_point("a"), a, goto_point("p"), b)
        assert runner.run(pipeline.insert_before("a", x), "") == "xab"
        assert pipeline.without("a").names == ("a", "p", "b")
        assert pipeline.without("p").names == ("a", "a", "b")
