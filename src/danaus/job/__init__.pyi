from danaus.job.attached import AttachedJob as AttachedJob
from danaus.job.local import JobState as JobState
from danaus.job.local import LocalJob as LocalJob
