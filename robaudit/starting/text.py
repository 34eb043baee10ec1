"""How does the first spec read?"""

from __future__ import annotations

import json
from typing import Any

from robaudit.starting.answers import Answers


def spec_text(answers: Answers) -> str:
    """The YAML text: the sections with a comment each, values as YAML's JSON subset, so that no text can break out."""
    lines = ["# What robaudit audits; all keys: robaudit schema, or docs/spec.md", "model:"]
    lines += [f"  {key}: {_value(value)}" for key, value in answers.model.items()]
    if "mean" not in answers.model:
        lines.append("  # mean: [0.485, 0.456, 0.406]   # of your training, if it normalised; applied after the noise")
        lines.append("  # std: [0.229, 0.224, 0.225]")
    lines += ["dataset:", *(f"  {key}: {_value(value)}" for key, value in answers.dataset.items())]
    lines += ["noise:", f"  sigma: [{', '.join(answers.sigma)}]   # standard deviation on pixels in [0, 1]"]
    lines += ["estimators:", f"  - mc: {{samples: {answers.samples}}}   # noisy copies of each image"]
    if answers.least is not None:
        gates = [f"mean(sigma={sigma}) >= {answers.least!r}" for sigma in answers.sigma]
        lines += ["gates:   # what robaudit gate asks of a run", *(f"  - {_value(gate)}" for gate in gates)]
    else:
        lines += ["# gates:   # what robaudit gate asks of a run", f'#   - "mean(sigma={answers.sigma[0]}) >= 0.9"']
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
