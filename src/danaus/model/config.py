"""The shape of a Llama-class network.

Owns ``LlamaConfig`` and its checks.  Plain Python: a controller without torch can read it.
"""

from __future__ import annotations

from dataclasses import dataclass

from danaus.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class LlamaConfig:
    """Sizes of a Llama-class network.

    Args:
        vocab_size: Number of tokens; 256 for bytes.
        dim: Width of the residual stream.
        num_layers: Transformer blocks.
        num_heads: Query heads; divides ``dim``, the quotient is even (rotary pairs).
        num_kv_heads: Key and value heads; divides ``num_heads``.
        ffn_dim: Width inside the gated feed-forward.
        rope_theta: Base of the rotary frequencies.
        norm_eps: Added to the mean square before its root.
        tied: The output projection is the embedding's transpose.
    """

    vocab_size: int = 256
    dim: int = 128
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    ffn_dim: int = 320
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    tied: bool = True

    def __post_init__(self) -> None:
        for name in ("vocab_size", "dim", "num_layers", "num_heads", "num_kv_heads", "ffn_dim"):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(f"model.{name} is {value}", "at least 1")
        for name in ("rope_theta", "norm_eps"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"model.{name} is {getattr(self, name)}", "more than 0")
        if self.dim % (2 * self.num_heads):
            raise ConfigError(
                f"model.dim {self.dim} with model.num_heads {self.num_heads}",
                "dim must be a multiple of 2 * num_heads (rotary embeddings turn pairs)",
            )
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"model.num_heads {self.num_heads} with model.num_kv_heads {self.num_kv_heads}",
                "num_heads must be a multiple of num_kv_heads",
            )

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.dim // self.num_heads

    @property
    def num_parameters(self) -> int:
        """Number of trained values, a tied output projection counted once."""
        attention = 2 * self.dim * self.dim + 2 * self.dim * self.num_kv_heads * self.head_dim
        block = attention + 3 * self.dim * self.ffn_dim + 2 * self.dim
        embeddings = self.vocab_size * self.dim * (1 if self.tied else 2)
        return self.num_layers * block + embeddings + self.dim
