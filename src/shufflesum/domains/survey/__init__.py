"""Everything about the domain `Survey`.

`questions` has single questions, their answers and `survey.toml`; `domain` has the marginals that are wanted, and reads
tables of answers; `quantities` has numbers with their joint errors, `estimate` what can be asked afterwards.
"""

from shufflesum.domains.survey.domain import Survey
from shufflesum.domains.survey.questions import NO_ANSWER, Question

__all__ = ["NO_ANSWER", "Question", "Survey"]
