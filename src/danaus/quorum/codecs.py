"""The two directions of speech between replicas and the quorum service, as bytes.

Owns the codecs of ``quorum.messages``'s unions; apart from them, so that the pure machine and its
messages import nothing of ``wire``.
"""

from __future__ import annotations

from danaus.quorum.messages import FromReplica, FromService
from danaus.wire.codec import Codec

FROM_REPLICA: Codec[FromReplica] = Codec(FromReplica)
FROM_SERVICE: Codec[FromService] = Codec(FromService)
