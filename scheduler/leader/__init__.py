"""Who may write: an election over a Lease, the Lease of the kube-scheduler beside us, or nobody else by decree.

A lease is a hint, not a lock: nothing in the API server keeps a paused leader from writing. So the leader asks
`can_write` before every request, the deadline of which counts from the *start* of its last successful renewal, and the
data itself rejects stale writers (epochs, resourceVersions). Whether another holder is alive is judged by when *we*
saw its record change, never by the times in the record.

Source: docs/design/leader-election.md#rules; docs/decisions/0008-one-writer.md.
"""

from scheduler.leader.elector import LeaderElector
from scheduler.leader.follow import FollowLease
from scheduler.leader.leadership import AlwaysLeader, Leadership, LeadershipLostError

__all__ = [
    "AlwaysLeader",
    "FollowLease",
    "LeaderElector",
    "Leadership",
    "LeadershipLostError",
]
