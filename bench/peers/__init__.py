"""Published load generators, each in a virtual environment of its own, run against a server and read back.

They are measured from outside: what a generator says of a request is held against the log of the server that
answered it, so the text that was generated is kept with each request's times (see `server_number`). Nothing here
reaches the network once a generator is installed; its tokenizer is made locally, as the rehearsal's model makes it.
"""

from bench.peers.failed import PeerFailed, explain, last_line
from bench.peers.guidellm import TORCH, GuideLLM
from bench.peers.kept import Usage, keep
from bench.peers.peer import Load, Peer, PeerRequest, PeerResult, environment, server_number
from bench.peers.vllm_bench_serve import VllmBenchServe

PEERS: tuple[type[Peer], ...] = (VllmBenchServe, GuideLLM)

__all__ = [
    "PEERS",
    "TORCH",
    "GuideLLM",
    "Load",
    "Peer",
    "PeerFailed",
    "PeerRequest",
    "PeerResult",
    "Usage",
    "VllmBenchServe",
    "environment",
    "explain",
    "keep",
    "last_line",
    "server_number",
]
