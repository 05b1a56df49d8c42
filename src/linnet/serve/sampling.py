"""Choosing the next token of many rows at once.

Each row gets what `linnet.text.sampling.sample` would give it alone, by the same order of
penalties, temperature, top-k, top-p and min-p, and with its own random stream: nothing of a row
depends on the others. What is costly, the work over whole vocabularies, is done for all rows
together; sorting is left for the few tokens that can be in a nucleus.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from linnet.serve.events import TokenLogprob
from linnet.text.sampling import Sampling, SamplingState

_SMALL_K = 256
_STRETCH = 128


@dataclass
class Draw:
    """One row's wishes. `mask` `[≥ Vocab / 8] u8` has a bit for each token allowed."""

    state: SamplingState
    bias: tuple[np.ndarray, np.ndarray] | None = None  # ids [N] i64, values [N] f32
    mask: np.ndarray | None = None
    logprobs: int | None = None


@dataclass(frozen=True)
class Drawn:
    """A token, or why there is none."""

    token: int
    logprob: TokenLogprob | None = None
    error: str | None = None


@dataclass
class _Edits:
    """Places of the logits to change, gathered over rows."""

    rows: list[np.ndarray] = field(default_factory=list)
    ids: list[np.ndarray] = field(default_factory=list)
    values: list[np.ndarray] = field(default_factory=list)

    def add(self, row: int, ids: np.ndarray, values: np.ndarray) -> None:
        self.rows.append(np.full(ids.size, row, dtype=np.int64))
        self.ids.append(ids)
        self.values.append(values.astype(np.float32))

    def gathered(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor] | None:
        if not self.rows:
            return None
        parts = (np.concatenate(p) for p in (self.rows, self.ids, self.values))
        rows, ids, values = (torch.from_numpy(p).to(device) for p in parts)
        return rows, ids, values


# The largest of each row of logits (NaN where there is one) and its first place; or None.
Largest = Callable[[Tensor], "tuple[list[float], list[int]] | None"]


def draw(
    logits: Tensor, rows: Sequence[Draw], largest: Largest = lambda logits: None
) -> list[Drawn]:
    """One token for each row of `logits [len(rows), Vocab]`; counts it in the row's state.

    `logits` is not changed. A row with NaN, or in which nothing is allowed, gets an error.
    `largest` may know a quicker way to what it is called.
    """
    if all(_plain(row) for row in rows):
        return _greedy(rows, *(largest(logits) or _largest(logits)))
    with torch.inference_mode():
        x = logits.float()
        beside = _logprobs(x, rows)
        x = _edited(x, rows, x.data_ptr() == logits.data_ptr())
        top, best = (t.cpu().numpy() for t in x.max(dim=1))
        tokens = best.astype(np.int64)
        errors: list[str | None] = [None] * len(rows)
        drawn: list[int] = []
        for i, row in enumerate(rows):
            errors[i] = _wrong(top[i])
            if errors[i] is None and not (row.state.sampling.greedy or top[i] == np.inf):
                if row.state.sampling.top_k != 1:
                    drawn.append(i)
        if drawn:
            whole = len(drawn) == len(rows)
            part = x if whole else x[torch.tensor(drawn, device=x.device)]
            tokens[drawn] = _random(part, top[drawn], [rows[i].state for i in drawn])
    result: list[Drawn] = []
    for i, row in enumerate(rows):
        token = int(tokens[i])
        if errors[i] is None:
            row.state.add(token)
        result.append(Drawn(token, _told(beside.get(i), token), errors[i]))
    return result


def _plain(row: Draw) -> bool:
    """Whether the likeliest token is all that is asked for."""
    s = row.state.sampling
    asks = row.bias is not None or row.mask is not None or row.logprobs is not None
    return s.greedy and not s.penalized and not asks


def _largest(logits: Tensor) -> tuple[list[float], list[int]]:
    """The first of the largest logits of each row, read once as they are."""
    count, vocabulary = logits.shape
    with torch.inference_mode():
        if vocabulary % _STRETCH == 0 and logits.is_contiguous():
            # The largest of each stretch first: finding a place costs more than a maximum.
            parts = logits.view(count, vocabulary // _STRETCH, _STRETCH)
            top, where = parts.amax(dim=2).float().max(dim=1)
            inside = parts[torch.arange(count, device=logits.device), where].float()
            best = where * _STRETCH + inside.max(dim=1).indices
        else:
            top, best = logits.float().max(dim=1)
    return top.tolist(), best.tolist()


def _greedy(rows: Sequence[Draw], top: list[float], best: list[int]) -> list[Drawn]:
    result: list[Drawn] = []
    for row, token, value in zip(rows, best, top, strict=True):
        error = _wrong(value)
        if error is None:
            row.state.add(token)
        result.append(Drawn(token, None, error))
    return result


def _wrong(top: float) -> str | None:
    """Why no token can be drawn of a row whose largest logit is `top`."""
    if math.isnan(top):
        return "the logits hold NaN: the weights or the computation are damaged"
    return "no token can be drawn: every logit is minus infinity" if top == -np.inf else None


def _edited(x: Tensor, rows: Sequence[Draw], shared: bool) -> Tensor:
    """The logits with penalties, then biases, then masks; a copy where they would change."""
    vocabulary = x.shape[1]
    scaled, lowered, raised = _Edits(), _Edits(), _Edits()
    for i, row in enumerate(rows):
        s, state = row.state.sampling, row.state
        if s.repetition_penalty != 1:
            seen = {*state.counts, *state.prompt}
            ids = np.fromiter((t for t in seen if t < vocabulary), dtype=np.int64)
            scaled.add(i, ids, np.full(ids.size, s.repetition_penalty))
        if state.counts and (s.presence_penalty or s.frequency_penalty):
            ids = np.fromiter(state.counts.keys(), dtype=np.int64, count=len(state.counts))
            times = np.fromiter(state.counts.values(), dtype=np.float32, count=ids.size)
            by = np.float32(s.presence_penalty) + np.float32(s.frequency_penalty) * times
            lowered.add(i, ids, by)
        if row.bias is not None:
            raised.add(i, *row.bias)
    masks = [(i, row.mask) for i, row in enumerate(rows) if row.mask is not None]
    if shared and (scaled.rows or lowered.rows or raised.rows or masks):
        x = x.clone()
    if (edit := scaled.gathered(x.device)) is not None:
        at, ids_, by_ = edit
        values = x[at, ids_]
        x[at, ids_] = torch.where(values > 0, values / by_, values * by_)
    if (edit := lowered.gathered(x.device)) is not None:
        at, ids_, by_ = edit
        x[at, ids_] -= by_
    if (edit := raised.gathered(x.device)) is not None:
        at, ids_, by_ = edit
        x[at, ids_] += by_
    for i, mask in masks:
        bits = np.unpackbits(mask, bitorder="little")
        allowed = np.zeros(vocabulary, dtype=bool)
        known = min(vocabulary, bits.size)
        allowed[:known] = bits[:known]
        x[i].masked_fill_(~torch.from_numpy(allowed).to(x.device), -torch.inf)
    return x


def _random(x: Tensor, top: np.ndarray, states: list[SamplingState]) -> np.ndarray:
    """Draws with temperature above 0. `x [R, Vocab]`, `top [R]` the largest of each row."""
    settings = [state.sampling for state in states]
    uniform = [state.random.random() for state in states]
    tokens = np.full(len(states), -1, dtype=np.int64)
    few = [i for i, s in enumerate(settings) if 0 < s.top_k <= min(_SMALL_K, x.shape[1] - 1)]
    if few:
        rows = x if len(few) == x.shape[0] else x[few]
        tokens[few] = _few(rows, top[few], [settings[i] for i in few], [uniform[i] for i in few])
    rest = [i for i in range(len(states)) if tokens[i] < 0]
    if rest:
        rows = x if len(rest) == x.shape[0] else x[rest]
        tokens[rest] = _many(
            rows, top[rest], [settings[i] for i in rest], [uniform[i] for i in rest]
        )
    return tokens


def _few(x: Tensor, top: np.ndarray, settings: list[Sampling], uniform: list[float]) -> list[int]:
    """Rows with a small top-k: only the largest logits are looked at. -1 for a row in which more
    are equal to the k-th than were fetched."""
    most = min(x.shape[1], max(s.top_k for s in settings) + 16)
    found = torch.topk(x, most, dim=1)
    values, ids = found.values.cpu().numpy(), found.indices.cpu().numpy()
    tokens: list[int] = []
    for i, s in enumerate(settings):
        least = values[i, s.top_k - 1]
        if values[i, -1] == least and most < x.shape[1]:
            tokens.append(-1)
            continue
        kept = np.flatnonzero(values[i] >= least)
        kept = kept[np.argsort(ids[i, kept], kind="stable")]  # by id, as whole rows stand
        scaled = values[i, kept] - top[i]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            weights = np.exp(scaled / np.float32(s.temperature))
        weights[scaled == 0] = 1
        needed = s.top_p * float(np.sum(weights, dtype=np.float64))
        if s.min_p > 0 and s.top_p == 1:
            kept, weights = kept[weights >= s.min_p], weights[weights >= s.min_p]
        tokens.append(_pick(weights, ids[i, kept], s, needed, uniform[i]))
    return tokens


def _many(x: Tensor, top: np.ndarray, settings: list[Sampling], uniform: list[float]) -> np.ndarray:
    """Rows of which any token may be drawn, or a nucleus of unknown size."""
    vocabulary = x.shape[1]
    heat = torch.tensor([s.temperature for s in settings], dtype=torch.float32, device=x.device)
    # exp of differences: the likeliest has weight 1, so nothing overflows. A tiny temperature
    # may round to 0 in f32: the likeliest is then 0 / 0, and set to 1.
    weights = x - torch.from_numpy(top).to(x.device).unsqueeze(1)
    if any(s.temperature != 1 for s in settings):
        likeliest = weights == 0
        weights.div_(heat.unsqueeze(1)).exp_().masked_fill_(likeliest, 1.0)
    else:
        weights.exp_()
    limits = {i: s.top_k for i, s in enumerate(settings) if 0 < s.top_k < vocabulary}
    if limits:
        weights.masked_fill_(x < _kth(x, limits).unsqueeze(1), 0.0)
    tokens = np.zeros(len(settings), dtype=np.int64)
    filtered = [
        i for i, s in enumerate(settings) if s.top_p < 1 or s.min_p > 0 or i in limits
    ]  # fmt: skip
    free = [i for i in range(len(settings)) if i not in set(filtered)]
    if free:
        sums = torch.cumsum(weights[free], 1, dtype=torch.float64)
        tokens[free] = _at(sums, np.array([uniform[i] for i in free]))
    if filtered:
        some = weights if len(filtered) == len(settings) else weights[filtered]
        chosen = _filtered(some, [settings[i] for i in filtered], [uniform[i] for i in filtered])
        tokens[filtered] = chosen
    return tokens


def _kth(x: Tensor, limits: dict[int, int]) -> Tensor:
    """The k-th largest logit of each row that has a limit, minus infinity elsewhere."""
    least = torch.full((x.shape[0],), -torch.inf, device=x.device)
    for i, k in limits.items():
        least[i] = torch.topk(x[i], k, sorted=True).values[-1]
    return least


def _at(sums: Tensor, uniform: np.ndarray) -> np.ndarray:
    """The first place where a row's running sum passes its share of the whole."""
    totals = sums[:, -1:]
    share = torch.from_numpy(uniform).to(sums.device).unsqueeze(1) * totals
    at = torch.searchsorted(sums, share, right=True)
    last = torch.searchsorted(sums, totals.contiguous())  # the last with weight
    found: np.ndarray = torch.minimum(at, last).squeeze(1).cpu().numpy()
    return found


def _filtered(weights: Tensor, settings: list[Sampling], uniform: list[float]) -> list[int]:
    """Rows with top-k (already zero beyond), top-p or min-p: only tokens that may stay.

    All weights below `(1 - p) S / Vocab`, `S` their sum, together carry less than `(1 - p) S`:
    so the nucleus stands above, and the rest need not be sorted.
    """
    vocabulary = weights.shape[1]
    total = torch.sum(weights, 1, dtype=torch.float64)
    p = torch.tensor([s.top_p for s in settings], dtype=torch.float64, device=weights.device)
    floor = (1 - p) * total / vocabulary * (1 - 1e-6)
    least = torch.tensor([s.min_p for s in settings], dtype=torch.float32, device=weights.device)
    smallest = torch.finfo(torch.float32).tiny
    limit = torch.maximum(floor.float(), least).clamp_min(smallest)
    places = torch.nonzero(weights >= limit.unsqueeze(1))
    values = weights[places[:, 0], places[:, 1]].cpu().numpy()
    rows, ids = places[:, 0].cpu().numpy(), places[:, 1].cpu().numpy()
    ends = np.searchsorted(rows, np.arange(len(settings)), side="right")
    needed = (p * total).cpu().numpy()
    tokens: list[int] = []
    start = 0
    for i, end in enumerate(ends):
        w, t = values[start:end], ids[start:end]
        start = end
        tokens.append(_pick(w, t, settings[i], needed[i], uniform[i]))
    return tokens


def _pick(w: np.ndarray, ids: np.ndarray, s: Sampling, needed: float, uniform: float) -> int:
    """One of the candidates `ids` (ascending) by their weights; with top-p, of the fewest and
    largest that carry `needed`."""
    if s.top_p < 1:
        order = np.argsort(-w, kind="stable")  # of equal weights the lower id first
        w, ids = w[order], ids[order]
        kept = int(np.searchsorted(np.cumsum(w, dtype=np.float64), needed)) + 1
        w, ids = w[:kept], ids[:kept]
        if s.min_p > 0:
            w, ids = w[w >= s.min_p], ids[w >= s.min_p]
    sums = np.cumsum(w, dtype=np.float64)
    at = int(np.searchsorted(sums, uniform * sums[-1], side="right"))
    return int(ids[min(at, int(np.searchsorted(sums, sums[-1])))])


# --- Log probabilities --------------------------------------------------------------

_Beside = tuple[np.ndarray, np.ndarray, np.ndarray]  # log probabilities [V], top ids, top values


def _logprobs(x: Tensor, rows: Sequence[Draw]) -> dict[int, _Beside]:
    """For the rows that want them, before anything is changed."""
    wanted = [i for i, row in enumerate(rows) if row.logprobs is not None]
    if not wanted:
        return {}
    logs = torch.log_softmax(x[wanted], 1)
    most = max(rows[i].logprobs or 0 for i in wanted)
    values, ids = torch.topk(logs, min(max(most, 1), x.shape[1]), dim=1)
    found: dict[int, _Beside] = {}
    for j, i in enumerate(wanted):
        k = rows[i].logprobs or 0
        found[i] = (
            logs[j].cpu().numpy(), ids[j, :k].cpu().numpy(), values[j, :k].cpu().numpy(),
        )  # fmt: skip
    return found


def _told(beside: _Beside | None, token: int) -> TokenLogprob | None:
    if beside is None:
        return None
    logs, ids, values = beside
    top = tuple((int(t), float(v)) for t, v in zip(ids, values))
    return TokenLogprob(token, float(logs[token]), top)
