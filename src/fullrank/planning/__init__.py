"""The planner behind ``code.name = "auto"``: it chooses the code that suits measured times.

``Planner.observe`` takes an ``Observation`` of each iteration, limited to what services see, and
``Planner.plan`` returns a ``Plan``. docs/adr/0009-planner.md gives the reasons and the alternatives
that were tried.
"""
