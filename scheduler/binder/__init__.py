"""The only code that changes the cluster: claims and pods, in an order that no crash can make unsafe."""

from scheduler.binder.binder import Binder, BinderCache, Chain, ClaimBarrier
from scheduler.binder.claims import ClaimWriter
from scheduler.binder.epochs import Epochs
from scheduler.binder.outcome import BOUND, BindError, BindOutcome, LeaseLostError
from scheduler.binder.pods import PodWriter

__all__ = [
    "BOUND",
    "BindError",
    "BindOutcome",
    "Binder",
    "BinderCache",
    "Chain",
    "ClaimBarrier",
    "ClaimWriter",
    "Epochs",
    "LeaseLostError",
    "PodWriter",
]
