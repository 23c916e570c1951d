"""A staged pipeline, useful by itself. It knows nothing about LLMs."""

from treadle.pipeline.compiler import Component as Component
from treadle.pipeline.components import Stage as Stage
from treadle.pipeline.components import done as done
from treadle.pipeline.components import goto as goto
from treadle.pipeline.components import goto_point as goto_point
from treadle.pipeline.components import stage as stage
from treadle.pipeline.components import switch as switch
from treadle.pipeline.components import tbd as tbd
from treadle.pipeline.errors import PipelineError as PipelineError
from treadle.pipeline.errors import StageError as StageError
from treadle.pipeline.execute import Progress as Progress
from treadle.pipeline.observe import StageEvent as StageEvent
from treadle.pipeline.observe import StageObserver as StageObserver
from treadle.pipeline.pipeline import Pipeline as Pipeline
from treadle.pipeline.pipeline import embed as embed
