"""The words of a run's journal: what the controller records and the report reads.

Owns the names of events and the facts each carries; ``app.timeline`` turns them into fault
timelines and lanes.  When it happened is added by ``core.journal``.  A reader must live with any
event missing: a run may be killed at any moment.

Facts used by several events: ``replica`` (stable name, e.g. ``"replica-0"``), ``rank``,
``incarnation``, ``process_id`` (``"host/name/rank#incarnation"``), ``pid``, ``step`` (number of
applied steps), ``epoch`` (``"term.n"``), ``reason`` (words for a person).  ``member``
(``"replica/rank#incarnation"``) may stand for the first three.

==================== ==========================================================================
event                facts
==================== ==========================================================================
run_started          name, replicas (list of names), ranks (per replica), steps (planned), pid,
                     text (where the data came from), settings, resume (true: it goes on), repair
                     (rank or replica, and why: what is started anew where one rank is lost)
run_adopted          replicas (names), living (replica -> incarnation: they go on as they are), gone
                     (those that do not), pid, reason (another controller goes on with the run)
run_resumed          replica, incarnation, step, term, reason (each replica says it)
fault_injected       fault (unique id), kind (see ``FaultKind``), target (replica name, host,
                     ``"quorum service"`` or ``"controller"``), spec (as ``danaus chaos`` reads
                     it), step, text (words); and of the victim: process_id, pid, incarnation
                     where it has them
fault_missed         fault, kind, target, reason (what was to be hit was not there)
fault_lifted         fault, kind, target (one that lasted is over), reason (why it is not, if so)
process_started      replica, rank, incarnation, process_id, pid
worker_ready         replica, incarnation, platform, reason (why that platform), bits (exact or off:
                     whether sums have one order), bits_reason, environment,
                     state_bytes, snapshot_room_bytes (beyond it a donor pauses, H-2),
                     checkpoint_room_bytes (beyond it a checkpoint is waited for, H-5)
process_exited       replica, rank, incarnation, process_id, pid, exit_code, signal (name, e.g.
                     ``"SIGKILL"``), kind (of MeshFailure), reason, expected (true for a stop
                     that the controller asked for)
process_stuck        replica, pids, reason (it was killed and does not end)
hang_noticed         replica, rank, incarnation, process_id, still_s, reason
quorum_announced     epoch, members (list of ``"replica/rank#incarnation"``), learners (same),
                     committed_step, hold, reason
step_refused         step, replica, reason (what was computed is not sound: it is tried again)
step_discarded       step, epoch, reason, replica
learning_started     replica, incarnation, step, donors (list), trails (true: the others go on)
state_served         replica, incarnation, bytes (that went from it to learners)
healed               replica, incarnation, step, bytes, duration_s, donors (list)
caught_up            replica, incarnation, step, steps (how many of the others' it applied up to
                     that one), bytes, duration_s (since it began to learn), donors (list)
rank_repaired        replica, rank (which was lost), incarnation (of all its ranks from here on),
                     pid (of the new process), kept (pids of the others, which live on), duration_s
                     (from its death being known to all ranks having met again)
rank_not_repaired    replica, rank, reason (the replica is started again whole)
rank_healed          replica, rank, incarnation, what (state, gradients), step, steps, bytes (that
                     a rank of a repaired replica fetched)
leave_asked          replica, incarnation, reason (who wants it to leave: it does after its step)
replica_left         replica, incarnation, step, reason, saved (whether it was the last, and wrote
                     a checkpoint of that step before it ended)
host_joined          host, agent_address, agent_pid (on its machine), away_s (0 at first)
spare_ready          spare
spare_used           spare, replica (which it becomes)
spare_lost           spare, reason
crew_scaled          replicas, was, start (list of replicas), drain (same)
roll_began           host, replicas (which leave, so that the host can be restarted)
roll_ended           host
host_leaving         host, reason (it ends once the replicas there have left)
host_lost            host, reason
cut_off              hosts (none of which answers: the controller's machine is cut off)
reached_again        hosts
host_waited_for      replica, host, away_s, reason (why it cannot be joined now)
service_exited       pid, signal, reason, expected
service_silent       pid, reason (it lives and does not answer; it is killed)
service_started      pid, address (the first start)
service_restarted    pid, address, attempt
watchdog_started     pid (it starts the controller of a detached run again)
watchdog_exited      reason (another is started, unless it says otherwise)
watchdog_gave_up     reason (the controller ended too often)
holdings_unwritten   reason (why what a later controller must know is not on the disk yet)
holdings_written     (all of it is, again)
controller_restarted pid, reason (by the watchdog)
straggler_found      replica, rank, incarnation, process_id, step, reason (how much slower it is)
straggler_recovered  the same
miscomputation_found the same (which leaf, and who computed what)
divergence_found     step, fingerprints (replica -> hex), minority (list of replicas), reason
checkpoint_written   step, replica
checkpoint_failed    step, replica, rank, reason
checkpoint_skipped   step, replica, reason (it was due)
checkpoint_in_line   step, replica, reason (training waits for the disk; said once)
checkpoint_refused   step, replica, reason (it is damaged; an older one is tried)
donor_failed         replica, incarnation (who learns), step, donor (``member``), reason
replica_failed       replica, reason (an error of its own, not a death)
replica_quarantined  replica, reason (it computes wrongly and is not started again)
suggestion           text (``now try: kill -9 PID``), pid, replica
run_stopped          reason (Ctrl-C, a signal)
run_failed           error (class), text
run_finished         step, sha256 (of the final state), num_restarts (of replicas), job_restarts
                     (how often all went back to a checkpoint)
==================== ==========================================================================
"""

from __future__ import annotations

import enum


class Event(enum.StrEnum):
    """Names of journal events; the facts of each stand in the module's docstring."""

    RUN_STARTED = "run_started"
    RUN_ADOPTED = "run_adopted"
    RUN_RESUMED = "run_resumed"
    FAULT_INJECTED = "fault_injected"
    FAULT_MISSED = "fault_missed"
    FAULT_LIFTED = "fault_lifted"
    PROCESS_STARTED = "process_started"
    WORKER_READY = "worker_ready"
    PROCESS_EXITED = "process_exited"
    PROCESS_STUCK = "process_stuck"
    HANG_NOTICED = "hang_noticed"
    QUORUM_ANNOUNCED = "quorum_announced"
    STEP_REFUSED = "step_refused"
    STEP_DISCARDED = "step_discarded"
    LEARNING_STARTED = "learning_started"
    STATE_SERVED = "state_served"
    HEALED = "healed"
    CAUGHT_UP = "caught_up"
    RANK_REPAIRED = "rank_repaired"
    RANK_NOT_REPAIRED = "rank_not_repaired"
    RANK_HEALED = "rank_healed"
    LEAVE_ASKED = "leave_asked"
    REPLICA_LEFT = "replica_left"
    HOST_JOINED = "host_joined"
    SPARE_READY = "spare_ready"
    SPARE_USED = "spare_used"
    SPARE_LOST = "spare_lost"
    CREW_SCALED = "crew_scaled"
    ROLL_BEGAN = "roll_began"
    ROLL_ENDED = "roll_ended"
    HOST_LEAVING = "host_leaving"
    HOST_LOST = "host_lost"
    CUT_OFF = "cut_off"
    REACHED_AGAIN = "reached_again"
    HOST_WAITED_FOR = "host_waited_for"
    SERVICE_EXITED = "service_exited"
    SERVICE_STARTED = "service_started"
    SERVICE_SILENT = "service_silent"
    SERVICE_RESTARTED = "service_restarted"
    WATCHDOG_STARTED = "watchdog_started"
    WATCHDOG_EXITED = "watchdog_exited"
    WATCHDOG_GAVE_UP = "watchdog_gave_up"
    HOLDINGS_UNWRITTEN = "holdings_unwritten"
    HOLDINGS_WRITTEN = "holdings_written"
    CONTROLLER_RESTARTED = "controller_restarted"
    STRAGGLER_FOUND = "straggler_found"
    STRAGGLER_RECOVERED = "straggler_recovered"
    MISCOMPUTATION_FOUND = "miscomputation_found"
    DIVERGENCE_FOUND = "divergence_found"
    CHECKPOINT_WRITTEN = "checkpoint_written"
    CHECKPOINT_FAILED = "checkpoint_failed"
    CHECKPOINT_SKIPPED = "checkpoint_skipped"
    CHECKPOINT_IN_LINE = "checkpoint_in_line"
    CHECKPOINT_REFUSED = "checkpoint_refused"
    DONOR_FAILED = "donor_failed"
    REPLICA_FAILED = "replica_failed"
    REPLICA_QUARANTINED = "replica_quarantined"
    SUGGESTION = "suggestion"
    RUN_STOPPED = "run_stopped"
    RUN_FAILED = "run_failed"
    RUN_FINISHED = "run_finished"


class FaultKind(enum.StrEnum):
    """What was done to the run; ``app.chaos_kinds`` says what each is."""

    KILL = "kill"
    SEGV = "segv"
    OOM = "oom"
    HANG = "hang"
    SLOW = "slow"
    PARTITION = "partition"
    LOSS = "loss"
    DELAY = "delay"
    DISK_FULL = "disk_full"
    FLIP_BIT = "flip_bit"
    NAN = "nan"
    CLOCK_JUMP = "clock_jump"
    KILL_COORDINATOR = "kill_coordinator"
    KILL_CONTROLLER = "kill_controller"
    KILL_NURSERY = "kill_nursery"
    KILL_HOST_AGENT = "kill_host_agent"
    KILL_HOST = "kill_host"
    PREEMPT = "preempt"
    OUTSIDE = "outside"
    """Not injected by danaus: somebody or something else ended a process."""


SERVICE = "quorum service"
"""The ``target`` of a fault that hits the quorum service."""

CONTROLLER = "controller"
"""The ``target`` of a fault that hits the run's controller."""
