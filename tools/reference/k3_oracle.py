#!/usr/bin/env python3
"""Slow, literal float64 oracle for the Kimi K3 text model (numpy only).

It shares no arithmetic with k3_numpy.py.  It builds a tiny model whose weights come from a
hash of the tensor name, so nothing has to be stored; see `tiny_tensor`.

  python3 k3_oracle.py check        self-checks, each printing its largest difference (about 1e-14):
                                    KDA recurrent == chunked, MLA expanded == absorbed, the whole
                                    sequence at once without state == incremental decode
  python3 k3_oracle.py goldens FILE writes tests/data/goldens/oracle.json
  python3 k3_oracle.py export DIR   writes the model as a checkpoint in the released layout
"""
import json, math, os, struct, sys
import numpy as np

from k3_format import official_config

M64 = (1 << 64) - 1

TINY = dict(
    hidden_size=96, num_hidden_layers=13, vocab_size=160, rms_norm_eps=1e-5,
    kda_num_heads=3, kda_head_dim=16, short_conv_kernel_size=4, gate_lower_bound=-5.0,
    num_attention_heads=4, q_lora_rank=48, kv_lora_rank=32,
    qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12,
    num_experts=20, num_experts_per_token=4, num_shared_experts=2,
    routed_expert_hidden_size=64, moe_intermediate_size=32, routed_scaling_factor=1.25,
    first_k_dense_replace=1, intermediate_size=80, attn_res_block_size=3,
    situ_beta=4.0, situ_linear_beta=25.0, full_attn_layers=[4, 8, 12, 13])


# ------------------------------------------------------------------ number formats
def bf16_round(x):
    """fp32 -> nearest-even bf16, returned as float32."""
    u = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    u = (u + 0x7FFF + ((u >> 16) & 1)) & 0xFFFF0000
    return u.astype(np.uint32).view(np.float32)


E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], np.float64)


def mxfp4_dequant(packed, scale):
    """packed u8 [R, C/2], scale u8 [R, C/32] -> float64 [R, C]."""
    r, half = packed.shape
    w = np.empty((r, half * 2))
    w[:, 0::2] = E2M1[packed & 15]           # low nibble  = even column
    w[:, 1::2] = E2M1[packed >> 4]           # high nibble = odd column
    s = np.ldexp(1.0, scale.astype(int) - 127)
    return w * np.repeat(s, 32, axis=1)


# ------------------------------------------------------------------ hashed tiny weights
def fnv1a64(name):
    h = 0xcbf29ce484222325
    for b in name.encode():
        h = ((h ^ b) * 0x100000001b3) & M64
    return h


def splitmix(seed, n):
    """n outputs of splitmix64 started at `seed`, as uint64."""
    z = (np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def unit(name, n):
    """n floats in [-1, 1): top 24 bits of splitmix64(fnv1a64(name)), exact in fp32."""
    return ((splitmix(fnv1a64(name), n) >> np.uint64(40)).astype(np.float64) / (1 << 23) - 1).astype(np.float32)


P = "language_model.model."


def tensor_table(c):
    """[(name, dtype, shape)] of the whole tiny checkpoint, released naming."""
    E, V = c["hidden_size"], c["vocab_size"]
    H, D = c["kda_num_heads"], c["kda_head_dim"]
    Nh, QL, KL = c["num_attention_heads"], c["q_lora_rank"], c["kv_lora_rank"]
    n, r, vd = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    L, I = c["routed_expert_hidden_size"], c["moe_intermediate_size"]
    S = I * c["num_shared_experts"]
    t = [(P + "embed_tokens.weight", "BF16", (V, E)), ("language_model.lm_head.weight", "BF16", (V, E)),
         (P + "norm.weight", "BF16", (E,)), (P + "output_attn_res_norm.weight", "BF16", (E,)),
         (P + "output_attn_res_proj.weight", "BF16", (1, E))]
    for l in range(c["num_hidden_layers"]):
        b = f"{P}layers.{l}."
        for k in ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm"):
            t.append((b + k + ".weight", "BF16", (E,)))
        for k in ("self_attention_res_proj", "mlp_res_proj"):
            t.append((b + k + ".weight", "BF16", (1, E)))
        a = b + "self_attn."
        if (l + 1) in c["full_attn_layers"]:
            t += [(a + "q_a_proj.weight", "BF16", (QL, E)), (a + "q_a_layernorm.weight", "BF16", (QL,)),
                  (a + "q_b_proj.weight", "BF16", (Nh * (n + r), QL)),
                  (a + "kv_a_proj_with_mqa.weight", "BF16", (KL + r, E)),
                  (a + "kv_a_layernorm.weight", "BF16", (KL,)),
                  (a + "kv_b_proj.weight", "BF16", (Nh * (n + vd), KL)),
                  (a + "g_proj.weight", "BF16", (Nh * vd, E)), (a + "o_proj.weight", "BF16", (E, Nh * vd))]
        else:
            for k in "qkvg":
                t.append((a + k + "_proj.weight", "BF16", (H * D, E)))
            t += [(a + "o_proj.weight", "BF16", (E, H * D)), (a + "b_proj.weight", "BF16", (H, E)),
                  (a + "f_a_proj.weight", "BF16", (D, E)), (a + "f_b_proj.weight", "BF16", (H * D, D)),
                  (a + "A_log", "F32", (D,)), (a + "dt_bias", "F32", (H * D,)),
                  (a + "o_norm.weight", "F32", (D,))]
            for k in "qkv":
                t.append((a + k + "_conv1d.weight", "F32", (H * D, 1, c["short_conv_kernel_size"])))
        if l < c["first_k_dense_replace"]:
            F = c["intermediate_size"]
            t += [(b + "mlp.gate_proj.weight", "BF16", (F, E)), (b + "mlp.up_proj.weight", "BF16", (F, E)),
                  (b + "mlp.down_proj.weight", "BF16", (E, F))]
        else:
            m = b + "block_sparse_moe."
            t += [(m + "gate.weight", "BF16", (c["num_experts"], E)),
                  (m + "gate.e_score_correction_bias", "F32", (c["num_experts"],)),
                  (m + "routed_expert_down_proj.weight", "BF16", (L, E)),
                  (m + "routed_expert_up_proj.weight", "BF16", (E, L)),
                  (m + "routed_expert_norm.weight", "BF16", (L,)),
                  (m + "shared_experts.gate_proj.weight", "BF16", (S, E)),
                  (m + "shared_experts.up_proj.weight", "BF16", (S, E)),
                  (m + "shared_experts.down_proj.weight", "BF16", (E, S))]
            for e in range(c["num_experts"]):
                for w, (o, i) in dict(w1=(I, L), w2=(L, I), w3=(I, L)).items():
                    t += [(f"{m}experts.{e}.{w}.weight_packed", "U8", (o, i // 2)),
                          (f"{m}experts.{e}.{w}.weight_scale", "U8", (o, i // 32))]
    return t


def tiny_tensor(c, name, dtype, shape):
    n = int(np.prod(shape))
    if dtype == "U8":
        z = splitmix(fnv1a64(name), n)
        if name.endswith("weight_packed"):
            return (z >> np.uint64(56)).astype(np.uint8).reshape(shape)
        return (121 + ((z >> np.uint64(62)) & np.uint64(3))).astype(np.uint8).reshape(shape)   # 121..124
    u = unit(name, n)
    if name.endswith("A_log"):                    # per head; the tail past kda_num_heads is zero
        x = u.copy(); x[c["kda_num_heads"]:] = 0
    elif name.endswith("dt_bias"):
        x = u * np.float32(2)
    elif "norm" in name:
        x = np.float32(1) + u * np.float32(0.5)
    elif name.endswith("e_score_correction_bias"):
        x = u * np.float32(0.25)
    elif name.endswith("_res_proj.weight"):
        x = u * np.float32(0.25)
    elif "conv1d" in name:
        x = u
    elif name.endswith("embed_tokens.weight"):
        x = u
    else:                                         # matrices: variance 1/fan_in
        x = u * np.float32(math.sqrt(3.0 / shape[-1]))
    x = bf16_round(x) if dtype == "BF16" else x.astype(np.float32)
    return x.reshape(shape)


def tiny_weights(c):
    return {n: tiny_tensor(c, n, d, s) for n, d, s in tensor_table(c)}


# ------------------------------------------------------------------ primitive ops (float64)
def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def l2n(x, eps=1e-6):
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + eps)


def situ(g, u, b1, b2):
    return b1 * np.tanh(g / b1) * sigmoid(g) * (b2 * np.tanh(u / b2))


def attn_res(sources, norm_w, proj_w, eps):
    """sources [S, E] raw values; keys are the RMS-normalised sources."""
    key = sources / np.sqrt((sources * sources).mean(-1, keepdims=True) + eps)
    s = key @ (norm_w * proj_w)
    p = np.exp(s - s.max()); p /= p.sum()
    return p @ sources


def route(x, W, bias, k, scale, renorm=True):
    score = sigmoid(W @ x)
    order = sorted(range(len(score)), key=lambda e: (-(score[e] + bias[e]), e))[:k]
    w = score[order]
    if renorm:
        w = w / (w.sum() + 1e-20)
    return order, w * scale


def kda_step(S, q, k, v, g, beta):
    """S [Dk, Dv] in place; q already scaled; g = log decay [Dk]."""
    S *= np.exp(g)[:, None]
    S += np.outer(beta * k, v - k @ S)
    return q @ S


def kda_chunk(S, q, k, v, g, beta):
    """Same maths for a run of C tokens: q,k,g [C,Dk], v [C,Dv], beta [C]; returns o [C,Dv]."""
    C = len(q)
    G = np.cumsum(g, 0)
    A = np.zeros((C, C)); B = np.zeros((C, C))
    for i in range(C):
        for j in range(i + 1):
            d = np.exp(G[i] - G[j])              # <= 1 because i >= j
            if j < i:
                A[i, j] = beta[i] * (k[i] * d * k[j]).sum()
            B[i, j] = (q[i] * d * k[j]).sum()    # diagonal kept
    T = np.linalg.solve(np.eye(C) + A, np.diag(beta))
    vn = T @ v - (T @ (k * np.exp(G))) @ S
    o = (q * np.exp(G)) @ S + B @ vn
    S[:] = np.exp(G[-1])[:, None] * S + (k * np.exp(G[-1] - G)).T @ vn
    return o


# ------------------------------------------------------------------ the model
class Model:
    def __init__(self, c, W, mla_eps=None):
        self.c, self.raw = c, W
        self.mla_eps = c["rms_norm_eps"] if mla_eps is None else mla_eps
        self.cache = {}
        self.reset()

    def w(self, name):
        if name not in self.cache:
            self.cache[name] = np.asarray(self.raw[name], np.float64)
        return self.cache[name]

    def reset(self):
        c = self.c
        H, D, K = c["kda_num_heads"], c["kda_head_dim"], c["short_conv_kernel_size"]
        self.kda, self.mla = {}, {}
        for l in range(c["num_hidden_layers"]):
            if (l + 1) in c["full_attn_layers"]:
                self.mla[l] = ([], [])                                   # latent, k_pe
            else:
                self.kda[l] = (np.zeros((H, D, D)), {x: np.zeros((H * D, K - 1)) for x in "qkv"})

    def kda_layer(self, l, x):
        c, a = self.c, f"{P}layers.{l}.self_attn."
        H, D = c["kda_num_heads"], c["kda_head_dim"]
        S, conv = self.kda[l]
        h = {}
        for n in "qkv":
            y = self.w(a + n + "_proj.weight") @ x
            ker = self.w(a + n + "_conv1d.weight")[:, 0, :]
            win = np.concatenate([conv[n], y[:, None]], 1)               # oldest .. newest
            conv[n][:] = win[:, 1:]
            z = (win * ker).sum(1)
            h[n] = (z * sigmoid(z)).reshape(H, D)                        # SiLU
        q, k, v = l2n(h["q"]) * D ** -0.5, l2n(h["k"]), h["v"]
        beta = sigmoid(self.w(a + "b_proj.weight") @ x)
        z = (self.w(a + "f_b_proj.weight") @ (self.w(a + "f_a_proj.weight") @ x) + self.w(a + "dt_bias")).reshape(H, D)
        g = c["gate_lower_bound"] * sigmoid(np.exp(self.w(a + "A_log")[:H])[:, None] * z)
        o = np.stack([kda_step(S[i], q[i], k[i], v[i], g[i], beta[i]) for i in range(H)])
        o = rms(o, self.w(a + "o_norm.weight"), c["rms_norm_eps"]).reshape(-1)
        return self.w(a + "o_proj.weight") @ (o * sigmoid(self.w(a + "g_proj.weight") @ x))

    def mla_layer(self, l, x, absorbed=False):
        c, a = self.c, f"{P}layers.{l}.self_attn."
        Nh, n, r, vd, KL = (c[k] for k in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim",
                                           "v_head_dim", "kv_lora_rank"))
        q = self.w(a + "q_b_proj.weight") @ rms(self.w(a + "q_a_proj.weight") @ x, self.w(a + "q_a_layernorm.weight"), self.mla_eps)
        q = q.reshape(Nh, n + r)
        kv = self.w(a + "kv_a_proj_with_mqa.weight") @ x
        lat, pe = self.mla[l]
        lat.append(rms(kv[:KL], self.w(a + "kv_a_layernorm.weight"), self.mla_eps))
        pe.append(kv[KL:])                                               # not normed, never rotated
        C, K = np.stack(lat), np.stack(pe)
        B = self.w(a + "kv_b_proj.weight").reshape(Nh, n + vd, KL)
        o = np.empty((Nh, vd))
        for h in range(Nh):
            Wk, Wv = B[h, :n], B[h, n:]
            if absorbed:
                s = C @ (Wk.T @ q[h, :n]) + K @ q[h, n:]
            else:
                s = (C @ Wk.T) @ q[h, :n] + K @ q[h, n:]
            s *= (n + r) ** -0.5
            p = np.exp(s - s.max()); p /= p.sum()
            o[h] = Wv @ (p @ C) if absorbed else p @ (C @ Wv.T)
        o = o.reshape(-1) * sigmoid(self.w(a + "g_proj.weight") @ x)
        return self.w(a + "o_proj.weight") @ o

    def ffn(self, l, x):
        c, b = self.c, f"{P}layers.{l}."
        b1, b2 = c["situ_beta"], c["situ_linear_beta"]
        if l < c["first_k_dense_replace"]:
            m = b + "mlp."
            return self.w(m + "down_proj.weight") @ situ(self.w(m + "gate_proj.weight") @ x, self.w(m + "up_proj.weight") @ x, b1, b2)
        m = b + "block_sparse_moe."
        ids, wt = route(x, self.w(m + "gate.weight"), self.w(m + "gate.e_score_correction_bias"),
                        c["num_experts_per_token"], c["routed_scaling_factor"])
        self.routes.append((l, ids))
        z = self.w(m + "routed_expert_down_proj.weight") @ x
        u = np.zeros_like(z)
        for e, p in zip(ids, wt):
            f = f"{m}experts.{e}."
            w1, w2, w3 = (mxfp4_dequant(self.raw[f + k + ".weight_packed"], self.raw[f + k + ".weight_scale"]) for k in ("w1", "w2", "w3"))
            u += p * (w2 @ situ(w1 @ z, w3 @ z, b1, b2))
        y = self.w(m + "routed_expert_up_proj.weight") @ rms(u, self.w(m + "routed_expert_norm.weight"), c["rms_norm_eps"])
        s = m + "shared_experts."
        return y + self.w(s + "down_proj.weight") @ situ(self.w(s + "gate_proj.weight") @ x, self.w(s + "up_proj.weight") @ x, b1, b2)

    def token(self, tid, absorbed=False, embed=None):
        """Consume one position, return its logits."""
        c, eps = self.c, self.c["rms_norm_eps"]
        self.routes, self.trace = [], []
        prefix = (self.w(P + "embed_tokens.weight")[tid] if embed is None else embed).copy()
        blocks = []
        for l in range(c["num_hidden_layers"]):
            b = f"{P}layers.{l}."
            h = prefix
            if blocks:
                h = attn_res(np.stack(blocks + [prefix]), self.w(b + "self_attention_res_norm.weight"),
                             self.w(b + "self_attention_res_proj.weight")[0], eps)
            if l % c["attn_res_block_size"] == 0:
                blocks.append(prefix); prefix = None
            h = rms(h, self.w(b + "input_layernorm.weight"), eps)
            y = self.mla_layer(l, h, absorbed) if l in self.mla else self.kda_layer(l, h)
            prefix = y if prefix is None else prefix + y
            h = attn_res(np.stack(blocks + [prefix]), self.w(b + "mlp_res_norm.weight"), self.w(b + "mlp_res_proj.weight")[0], eps)
            prefix = prefix + self.ffn(l, rms(h, self.w(b + "post_attention_layernorm.weight"), eps))
            self.trace.append(prefix)
        h = attn_res(np.stack(blocks + [prefix]), self.w(P + "output_attn_res_norm.weight"), self.w(P + "output_attn_res_proj.weight")[0], eps)
        self.final = rms(h, self.w(P + "norm.weight"), eps)
        return self.w("language_model.lm_head.weight") @ self.final


# ------------------------------------------------------------------ the same without carried state
def kda_full(m, l, x):
    """x [T, E] -> [T, E]: convolution over the zero-padded sequence, then one chunk from a zero state."""
    c, a, T = m.c, f"{P}layers.{l}.self_attn.", len(x)
    H, D, K = c["kda_num_heads"], c["kda_head_dim"], c["short_conv_kernel_size"]
    h = {}
    for n in "qkv":
        y = np.concatenate([np.zeros((K - 1, H * D)), x @ m.w(a + n + "_proj.weight").T])
        ker = m.w(a + n + "_conv1d.weight")[:, 0, :]
        z = sum(y[j:j + T] * ker[:, j] for j in range(K))
        h[n] = (z * sigmoid(z)).reshape(T, H, D)
    q, k, v = l2n(h["q"]) * D ** -0.5, l2n(h["k"]), h["v"]
    beta = sigmoid(x @ m.w(a + "b_proj.weight").T)
    z = (x @ m.w(a + "f_a_proj.weight").T) @ m.w(a + "f_b_proj.weight").T + m.w(a + "dt_bias")
    g = c["gate_lower_bound"] * sigmoid(np.exp(m.w(a + "A_log")[:H])[:, None] * z.reshape(T, H, D))
    o = np.stack([kda_chunk(np.zeros((D, D)), q[:, i], k[:, i], v[:, i], g[:, i], beta[:, i]) for i in range(H)], 1)
    o = rms(o, m.w(a + "o_norm.weight"), c["rms_norm_eps"]).reshape(T, -1)
    return (o * sigmoid(x @ m.w(a + "g_proj.weight").T)) @ m.w(a + "o_proj.weight").T


def mla_full(m, l, x):
    """x [T, E] -> [T, E]: every key and value expanded, one causally masked score matrix a head."""
    c, a, T = m.c, f"{P}layers.{l}.self_attn.", len(x)
    Nh, n, r, vd, KL = (c[k] for k in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim",
                                       "v_head_dim", "kv_lora_rank"))
    q = rms(x @ m.w(a + "q_a_proj.weight").T, m.w(a + "q_a_layernorm.weight"), m.mla_eps)
    q = (q @ m.w(a + "q_b_proj.weight").T).reshape(T, Nh, n + r)
    kv = x @ m.w(a + "kv_a_proj_with_mqa.weight").T
    lat = rms(kv[:, :KL], m.w(a + "kv_a_layernorm.weight"), m.mla_eps)
    kvb = (lat @ m.w(a + "kv_b_proj.weight").T).reshape(T, Nh, n + vd)
    o = np.empty((T, Nh, vd))
    for h in range(Nh):
        k = np.concatenate([kvb[:, h, :n], kv[:, KL:]], 1)
        s = np.where(np.tri(T, dtype=bool), q[:, h] @ k.T * (n + r) ** -0.5, -np.inf)
        p = np.exp(s - s.max(1, keepdims=True))
        o[:, h] = p / p.sum(1, keepdims=True) @ kvb[:, h, n:]
    return (o.reshape(T, -1) * sigmoid(x @ m.w(a + "g_proj.weight").T)) @ m.w(a + "o_proj.weight").T


def full(c, W, ids):
    """Logits [T, V] of a whole sequence, one layer after the other over all positions."""
    m, eps = Model(c, W), c["rms_norm_eps"]
    m.routes = []
    prefix, blocks = m.w(P + "embed_tokens.weight")[ids], []

    def mix(pre):
        return np.stack([attn_res(np.stack(s), m.w(pre + "_norm.weight"), m.w(pre + "_proj.weight")[0], eps)
                         for s in zip(*blocks, prefix)])
    for l in range(c["num_hidden_layers"]):
        b = f"{P}layers.{l}."
        h = mix(b + "self_attention_res") if blocks else prefix
        if l % c["attn_res_block_size"] == 0:
            blocks.append(prefix); prefix = np.zeros_like(prefix)
        h = rms(h, m.w(b + "input_layernorm.weight"), eps)
        prefix = prefix + (mla_full if l in m.mla else kda_full)(m, l, h)
        h = rms(mix(b + "mlp_res"), m.w(b + "post_attention_layernorm.weight"), eps)
        prefix = prefix + np.stack([m.ffn(l, x) for x in h])
    return rms(mix(P + "output_attn_res"), m.w(P + "norm.weight"), eps) @ m.w("language_model.lm_head.weight").T


PROMPT = [7, 93, 150, 2, 41, 41, 88, 5, 119, 60, 13, 77]


def run(c, W, n_new=12, absorbed=False):
    m = Model(c, W)
    rec, ids, lg = [], list(PROMPT), None
    for i in range(len(PROMPT) + n_new):
        lg = m.token(ids[i], absorbed)
        rec.append(dict(pos=i, id=ids[i], argmax=int(lg.argmax()), logits=lg,
                        layer_l2=[float(np.linalg.norm(t)) for t in m.trace], layer_head=[t[:4].tolist() for t in m.trace],
                        routes={str(l): e for l, e in m.routes}))
        if i + 1 == len(ids):
            ids.append(int(lg.argmax()))
    return rec, ids


def export(c, W, out):
    """Released layout: one file per layer + tail, tensors sorted F32 < BF16 < U8 then by name, no __metadata__."""
    os.makedirs(out, exist_ok=True)
    by = {}
    for n, d, s in tensor_table(c):
        k = int(n.split("layers.")[1].split(".")[0]) if ".layers." in n else c["num_hidden_layers"]
        by.setdefault(k, []).append((n, d, s))
    tot, wm, N = 0, {}, len(by)
    for k in sorted(by):
        fn = f"model-{k + 1:05d}-of-{N:06d}.safetensors"
        ts = sorted(by[k], key=lambda t: ({"F32": 0, "BF16": 1, "U8": 2}[t[1]], t[0]))
        off, hdr, blob = 0, {}, b""
        for n, d, s in ts:
            x = W[n]
            raw = x.tobytes() if d == "U8" else x.astype("<f4").tobytes() if d == "F32" else \
                (x.astype(np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()
            hdr[n] = dict(dtype=d, shape=list(s), data_offsets=[off, off + len(raw)])
            off += len(raw); blob += raw; wm[n] = fn
        j = json.dumps(hdr, separators=(",", ":")).encode()
        j += b" " * (-len(j) % 8)
        with open(os.path.join(out, fn), "wb") as f:
            f.write(struct.pack("<Q", len(j)) + j + blob)
        tot += off
    json.dump({"metadata": {"total_size": tot}, "weight_map": wm}, open(os.path.join(out, "model.safetensors.index.json"), "w"), indent=2)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(nested_config(c), f, indent=2)
        f.write("\n")


def nested_config(c):
    """config.json in the released shape; bos, eos and pad sit off the greedy ids of the goldens."""
    V = c["vocab_size"]
    root = official_config(dict(c, n_ranks=0))
    for part in (root, root["text_config"]):
        part.update(bos_token_id=V - 4, eos_token_id=V - 2, pad_token_id=V - 1)
    return root


if __name__ == "__main__":
    cmd = sys.argv[1] if len(sys.argv) > 1 else "check"
    c = TINY
    W = tiny_weights(c)
    if cmd == "export":
        export(c, W, sys.argv[2])
    elif cmd == "goldens":
        rec, ids = run(c, W)
        out = dict(config=c, prompt=PROMPT, ids=ids, argmax=[r["argmax"] for r in rec],
                   top1_margin=[float(np.sort(r["logits"])[-1] - np.sort(r["logits"])[-2]) for r in rec],
                   weight_probe={n: [float(v) for v in np.asarray(W[n], np.float64).reshape(-1)[:4]] for n, _, _ in tensor_table(c)[:40]},
                   logits={str(i): [float(f"{v:.9g}") for v in rec[i]["logits"]] for i in (0, 1, 5, len(PROMPT) - 1, len(rec) - 1)},
                   layer_l2={str(i): [float(f"{v:.9g}") for v in rec[i]["layer_l2"]] for i in (0, len(PROMPT) - 1)},
                   layer_head={str(i): [[float(f"{v:.9g}") for v in q] for q in rec[i]["layer_head"]] for i in (0, len(PROMPT) - 1)},
                   routes={str(i): rec[i]["routes"] for i in (0, len(PROMPT) - 1)})
        with open(sys.argv[2], "w") as f:
            json.dump(out, f, indent=1)
        print("ids", ids, "min margin", min(out["top1_margin"]))
    else:
        rng = np.random.default_rng(0)
        C, D = 16, 32
        q, k, v = l2n(rng.normal(size=(C, D))) * D ** -.5, l2n(rng.normal(size=(C, D))), rng.normal(size=(C, D))
        g, be = -5 * sigmoid(rng.normal(size=(C, D)) * 2), sigmoid(rng.normal(size=C))
        S0 = rng.normal(size=(D, D)); S1, S2 = S0.copy(), S0.copy()
        o1 = np.stack([kda_step(S1, q[t], k[t], v[t], g[t], be[t]) for t in range(C)])
        o2 = kda_chunk(S2, q, k, v, g, be)
        print("kda chunk vs step", abs(o1 - o2).max(), abs(S1 - S2).max())
        a, _ = run(c, W, 4); b, _ = run(c, W, 4, absorbed=True)
        print("mla absorbed vs expanded", max(abs(x["logits"] - y["logits"]).max() for x, y in zip(a, b)))
        whole = full(c, W, [x["id"] for x in a])
        print("full vs incremental", max(abs(x["logits"] - y).max() for x, y in zip(a, whole)))
