"""An unmodified script, run with limits, a plan, a record and survival."""
