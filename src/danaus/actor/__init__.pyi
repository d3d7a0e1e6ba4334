from typing import Annotated, TypeAlias, TypeVar

from danaus.actor.accumulator import Accumulator as Accumulator
from danaus.actor.attaching import attach as attach
from danaus.actor.attaching import attach_to_workers as attach_to_workers
from danaus.actor.calls import as_endpoint as as_endpoint
from danaus.actor.calls import send as send
from danaus.actor.contexts import ProcessInfo as ProcessInfo
from danaus.actor.controllers import get_or_spawn_controller as get_or_spawn_controller
from danaus.actor.debugging import debug_controller as debug_controller
from danaus.actor.deferred import returns_future as returns_future
from danaus.actor.endpoints import Actor as Actor
from danaus.actor.endpoints import concurrent_endpoint as concurrent_endpoint
from danaus.actor.endpoints import endpoint as endpoint
from danaus.actor.faces import Endpoint as Endpoint
from danaus.actor.failure import MeshFailure as MeshFailure
from danaus.actor.fault_hook import unhandled_fault_hook as unhandled_fault_hook
from danaus.actor.future import Future as Future
from danaus.actor.here import ChannelTransport as ChannelTransport
from danaus.actor.here import enable_transport as enable_transport
from danaus.actor.here import shutdown_context as shutdown_context
from danaus.actor.here import this_host as this_host
from danaus.actor.here import this_proc as this_proc
from danaus.actor.instance import Context as Context
from danaus.actor.instance import context as context
from danaus.actor.mesh import HostMesh as HostMesh
from danaus.actor.mesh import ProcMesh as ProcMesh
from danaus.actor.ports import Channel as Channel
from danaus.actor.ports import Port as Port
from danaus.actor.ports import PortReceiver as PortReceiver
from danaus.actor.process_runtime import current_actor_name as current_actor_name
from danaus.actor.process_runtime import current_rank as current_rank
from danaus.actor.process_runtime import current_size as current_size
from danaus.actor.replies import Replies as Replies
from danaus.actor.replies import wait_all as wait_all
from danaus.actor.restart import Restart as Restart
from danaus.actor.restart import RestartBudget as RestartBudget
from danaus.actor.telemetry import get_meter as get_meter
from danaus.actor.telemetry import span as span
from danaus.actor.telemetry import traced as traced
from danaus.actor.value_mesh import Outcome as Outcome
from danaus.actor.value_mesh import ValueMesh as ValueMesh
from danaus.actor.waiting_host import run_worker_loop_forever as run_worker_loop_forever
from danaus.actor.worker_loops import (
    run_worker_loop_until_shutdown as run_worker_loop_until_shutdown,
)
from danaus.actor.worker_loops import start_worker_loop_forever as start_worker_loop_forever
from danaus.core.errors import ActorError as ActorError
from danaus.core.errors import SupervisionError as SupervisionError
from danaus.core.extent import Extent as Extent
from danaus.core.extent import Point as Point
from danaus.core.extent import Region as Region
from danaus.core.shape import Shape as Shape
from danaus.core.shape import Slice as Slice

_A = TypeVar("_A", bound=Actor)

# A mesh of actors is taken for its actor, so that endpoints are found and checked.
ActorMesh: TypeAlias = Annotated[_A, "the actors of a mesh"]
