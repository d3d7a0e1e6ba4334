"""A Llama-class decoder in plain torch.

Owns the network's mathematics: RMSNorm, rotary embeddings, grouped-query attention, SwiGLU.
Knows nothing of processes, meshes or sharding; its first values are ``model.initial``'s.
The forward mutates no buffer (T-2) and draws no random number.

Shape suffixes: B rows, T positions, D width, N query heads, K key/value heads, H head width,
F feed-forward width, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from danaus.model.config import LlamaConfig


class RMSNorm(nn.Module):
    """Divide by the root mean square, times a learned scale.

    Source: Zhang and Sennrich 2019, as in Llama.
    """

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x_BTD: Tensor) -> Tensor:
        return F.rms_norm(x_BTD, (x_BTD.shape[-1],), self.weight, self.eps)


def rotary_angles(num_positions: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of each position's angles.

    Args:
        num_positions: T, positions from 0.
        head_dim: H, even.
        theta: Base of the frequencies.

    Returns:
        Two tensors ``[T, H / 2]``, fp32, CPU.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float64), theta**-exponents)
    return angles.cos().float(), angles.sin().float()


def rotate(x_BNTH: Tensor, cos_TH: Tensor, sin_TH: Tensor) -> Tensor:
    """Turn the pairs ``(i, i + H / 2)`` of each head by their position's angle.

    Source: Su et al. 2021, in the half-split layout of Llama's published weights.
    """
    a, b = x_BNTH.chunk(2, dim=-1)
    return torch.cat((a * cos_TH - b * sin_TH, b * cos_TH + a * sin_TH), dim=-1)


class Attention(nn.Module):
    """Causal self-attention with fewer key/value heads than query heads.

    Source: Ainslie et al. 2023 (grouped-query attention).
    """

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = config.num_heads, config.num_kv_heads
        self.head_dim = config.head_dim
        kv_dim = config.num_kv_heads * config.head_dim
        self.wq = nn.Linear(config.dim, config.dim, bias=False)
        self.wk = nn.Linear(config.dim, kv_dim, bias=False)
        self.wv = nn.Linear(config.dim, kv_dim, bias=False)
        self.wo = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x_BTD: Tensor, cos_TH: Tensor, sin_TH: Tensor) -> Tensor:
        rows, positions, dim = x_BTD.shape
        q_BNTH = self._heads(self.wq(x_BTD), self.num_heads)
        k_BKTH = self._heads(self.wk(x_BTD), self.num_kv_heads)
        v_BKTH = self._heads(self.wv(x_BTD), self.num_kv_heads)
        q_BNTH = rotate(q_BNTH, cos_TH, sin_TH)
        k_BKTH = rotate(k_BKTH, cos_TH, sin_TH)
        repeats = self.num_heads // self.num_kv_heads
        out_BNTH = F.scaled_dot_product_attention(
            q_BNTH,
            k_BKTH.repeat_interleave(repeats, dim=1),
            v_BKTH.repeat_interleave(repeats, dim=1),
            is_causal=True,
        )
        out: Tensor = self.wo(out_BNTH.transpose(1, 2).reshape(rows, positions, dim))
        return out

    def _heads(self, x_BTD: Tensor, num_heads: int) -> Tensor:
        rows, positions, _ = x_BTD.shape
        return x_BTD.view(rows, positions, num_heads, self.head_dim).transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU: ``w2(silu(w1 x) * w3 x)``.

    Source: Shazeer 2020.
    """

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.w1 = nn.Linear(config.dim, config.ffn_dim, bias=False)
        self.w2 = nn.Linear(config.ffn_dim, config.dim, bias=False)
        self.w3 = nn.Linear(config.dim, config.ffn_dim, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        out: Tensor = self.w2(F.silu(self.w1(x_BTD)) * self.w3(x_BTD))
        return out


class Block(nn.Module):
    """One layer: attention, then feed-forward, each normed first and added back."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.dim, config.norm_eps)
        self.attention = Attention(config)
        self.ffn_norm = RMSNorm(config.dim, config.norm_eps)
        self.ffn = FeedForward(config)

    def forward(self, x_BTD: Tensor, cos_TH: Tensor, sin_TH: Tensor) -> Tensor:
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD), cos_TH, sin_TH)
        out: Tensor = x_BTD + self.ffn(self.ffn_norm(x_BTD))
        return out


class Llama(nn.Module):
    """Tokens in, logits out.

    Args:
        config: How large it is.

    Source: Touvron et al. 2023 (Llama 2 and 3 differ from this only in sizes).
    """

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.dim, config.norm_eps)
        self.output = nn.Linear(config.dim, config.vocab_size, bias=False)
        if config.tied:
            self.output.weight = self.embedding.weight
        self._angles: tuple[Tensor, Tensor] | None = None

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return next-token logits.

        Args:
            tokens_BT: ``[B, T]``, int64.

        Returns:
            ``[B, T, V]``, in the parameters' dtype.
        """
        cos_TH, sin_TH = self._rotary(tokens_BT)
        x_BTD = self.embedding(tokens_BT)
        for block in self.blocks:
            x_BTD = block(x_BTD, cos_TH, sin_TH)
        logits_BTV: Tensor = self.output(self.norm(x_BTD))
        return logits_BTV

    def _rotary(self, tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
        # A function of sizes alone: kept beside the buffers, neither state nor part of a step.
        num_positions = tokens_BT.shape[1]
        if self._angles is None or self._angles[0].shape[0] < num_positions:
            cos_TH, sin_TH = rotary_angles(
                num_positions, self.config.head_dim, self.config.rope_theta
            )
            self._angles = (cos_TH.to(tokens_BT.device), sin_TH.to(tokens_BT.device))
        cos_TH, sin_TH = self._angles
        return cos_TH[:num_positions], sin_TH[:num_positions]
