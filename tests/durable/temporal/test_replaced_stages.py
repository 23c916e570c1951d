"""The recipes of docs/guide-stages.md that replace a stage, each as a Temporal workflow."""

import pytest
from tests.stages.test_replacement_recipes import RECIPES, check_run, made_of

from treadle import Loop

from . import running


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_runs_as_a_workflow(recipe, temporal_server):
    options = made_of(recipe)
    loop = Loop(name="agent", **options)
    result = running.run(temporal_server, running.result_of, loop, "Where?")
    check_run(recipe, options["llm_send_fn"], result)
