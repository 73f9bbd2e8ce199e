"""Train three agents on five learners, two of which straggle, to the centralised result.

Everything runs in this process; ``fullrank train`` runs the same as services.
"""

from fullrank.config import load
from fullrank.local import LocalRun

OPTIONS = {
    "iterations": 20,
    "learners": 5,
    "code.name": "cyclic",
    "code.tolerance": 2,
    "stragglers.name": "fixed_k",
    "stragglers.k": 2,
    "collect.warmup": 1024,
}

config = load(options=OPTIONS).check().config
coded, centralised = LocalRun(config), LocalRun(config, coded=False)

for iteration in coded:
    print(f"{iteration.iteration:3}  return {iteration.return_mean:8.1f}  late {iteration.late}")
centralised.train()

print("coded      ", coded.parameter_digest())
print("centralised", centralised.parameter_digest())
