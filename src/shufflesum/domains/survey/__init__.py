"""Everything about the domain `Survey`.

`questions` has single questions, their answers and `survey.toml`; `domain` has the marginals that are wanted, and reads
tables of answers; `estimate` answers with any count, share or mean that follows from what was collected.
"""

from shufflesum.domains.survey.domain import Survey
from shufflesum.domains.survey.questions import NO_ANSWER, Question

__all__ = ["NO_ANSWER", "Question", "Survey"]
