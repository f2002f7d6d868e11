"""Which random numbers have gradients by the parameters of their distribution, and which have not.

Those of a location and a scale (normal, uniform, exponential, gumbel, laplace) are drawn without
parameters, then multiplied and moved by ops that have rules; shuffles and choices are takes.
"""

from __future__ import annotations

from ember_ml.autodiff.rules.table import no_gradient

__all__: list[str] = []

_REJECTED = "it draws anew what does not fit, and its numbers do not follow its parameters smoothly"
_COUNTED = "it draws whole numbers, which do not follow its parameters smoothly"

for _name in ("gamma", "beta"):
    no_gradient(f"random.{_name}", _REJECTED)
for _name in ("bernoulli", "binomial", "poisson"):
    no_gradient(f"random.{_name}", _COUNTED)
for _name in ("split", "fold_in"):
    no_gradient(f"random.{_name}", "keys are integers")
