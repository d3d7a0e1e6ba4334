from danaus.app.chaos import FaultPlan as FaultPlan
from danaus.testing.clock import ManualClock as ManualClock
