# What type checkers see of this face; at run time its names are looked up when first used.

from danaus.job.local import JobState as JobState
from danaus.job.local import LocalJob as LocalJob
