#include "support/plain_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>

#include "kernels/dispatch.h"
#include "kernels/formats.h"
#include "weights/safetensors.h"

namespace k3::test {
namespace {

const std::string kModel = "language_model.model.";

float sum_of_lanes(std::array<float, 16> lanes) {
  for (size_t half : {8, 4, 2, 1}) {
    for (size_t j = 0; j < half; ++j) lanes[j] = lanes[j] + lanes[j + half];
  }
  return lanes[0];
}

float element(const float* x, size_t i, size_t n) {
  return i < n ? x[i] : 0.0f;
}

float inverse_root(size_t n) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
}

Vector unpack_nibbles(const std::vector<uint8_t>& raw) {
  Vector out;
  for (uint8_t byte : raw) {
    out.push_back(kernels::kE2m1[byte & 15]);
    out.push_back(kernels::kE2m1[byte >> 4]);
  }
  return out;
}

Vector widen(weights::DType dtype, const std::byte* bytes, size_t size) {
  Vector out;
  const bool narrow = dtype == weights::DType::kBf16;
  for (size_t at = 0; at < size; at += narrow ? 2 : 4) {
    out.push_back(narrow ? kernels::bf16_value(bytes + at) : kernels::f32_value(bytes + at));
  }
  return out;
}

}  // namespace

float plain_dot(const float* w, const float* x, size_t n) {
  std::array<float, 16> lanes{};
  for (size_t group = 0; group < n; group += 32) {
    for (size_t j = 0; j < 16; ++j) {
      for (size_t i : {group + 2 * j, group + 2 * j + 1}) {
        lanes[j] = std::fma(element(w, i, n), element(x, i, n), lanes[j]);
      }
    }
  }
  return sum_of_lanes(lanes);
}

float plain_dot(const float* w, const float* scales, const float* x, size_t n) {
  std::array<float, 16> lanes{};
  for (size_t block = 0; block < n; block += 128) {
    for (size_t j = 0; j < 16; ++j) {
      const size_t first = block + 8 * j;
      float p = element(w, first, n) * element(x, first, n);
      for (size_t i = first + 1; i < first + 8; ++i) {
        p = std::fma(element(w, i, n), element(x, i, n), p);
      }
      lanes[j] = std::fma(first < n ? scales[first / 32] : 1.0f, p, lanes[j]);
    }
  }
  return sum_of_lanes(lanes);
}

Vector plain_rms_norm(const Vector& x, const float* w, float eps) {
  const size_t n = x.size();
  const float mean = plain_dot(x.data(), x.data(), n) / static_cast<float>(n);
  const float r = 1.0f / std::sqrt(mean + eps);
  Vector out(n);
  for (size_t i = 0; i < n; ++i) out[i] = (x[i] * r) * w[i];
  return out;
}

PlainModel::PlainModel(const std::filesystem::path& directory)
    : config_(model::load_config(directory)),
      kernels_(kernels::table(kernels::Isa::kScalar)),
      memories_(config_.num_hidden_layers) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".safetensors") read_shard(entry.path());
  }
  const size_t dim = config_.kda_head_dim, width = config_.kda_width();
  for (Memory& memory : memories_) {
    memory.state.assign(config_.kda_heads * dim * dim, 0.0f);
    for (auto& tail : memory.tails) tail.assign(config_.conv_kernel - 1, Vector(width, 0.0f));
  }
}

void PlainModel::read_shard(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  weights::read_safetensors(path, [&](const weights::TensorEntry& entry) {
    Tensor& tensor = tensors_[std::string(entry.name)];
    tensor.shape.assign(entry.shape.begin(), entry.shape.end());
    const char* bytes = file.data() + entry.offset;
    if (entry.dtype == weights::DType::kU8) {
      tensor.raw.assign(bytes, bytes + entry.bytes);
      if (entry.name.ends_with("weight_packed")) tensor.values = unpack_nibbles(tensor.raw);
    } else {
      tensor.values = widen(entry.dtype, reinterpret_cast<const std::byte*>(bytes), entry.bytes);
    }
  });
}

const PlainModel::Tensor& PlainModel::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw std::runtime_error("no tensor " + name);
  return found->second;
}

const float* PlainModel::layer_values(const std::string& suffix) const {
  return at(kModel + "layers." + std::to_string(layer_) + "." + suffix).values.data();
}

Vector PlainModel::product(const std::string& name, const Vector& x) const {
  const Tensor& w = at(name);
  Vector y(w.shape[0]);
  for (size_t row = 0; row < y.size(); ++row) {
    y[row] = plain_dot(w.values.data() + row * x.size(), x.data(), x.size());
  }
  return y;
}

Vector PlainModel::layer_product(const std::string& suffix, const Vector& x) const {
  return product(kModel + "layers." + std::to_string(layer_) + "." + suffix + ".weight", x);
}

Vector PlainModel::expert_product(const std::string& name, const Vector& x) const {
  const Tensor& packed = at(name + ".weight_packed");
  const Tensor& scale = at(name + ".weight_scale");
  const size_t n = x.size(), groups = n / 32;
  Vector scales;
  for (uint8_t byte : scale.raw) scales.push_back(kernels::e8m0_value(std::byte{byte}));
  Vector y(packed.shape[0]);
  for (size_t row = 0; row < y.size(); ++row) {
    y[row] = plain_dot(packed.values.data() + row * n, scales.data() + row * groups, x.data(), n);
  }
  return y;
}

Vector PlainModel::take(uint32_t id) {
  const size_t width = config_.hidden_size;
  const float* row = at(kModel + "embed_tokens.weight").values.data() + id * width;
  prefix_.assign(row, row + width);
  snapshots_.clear();
  for (layer_ = 0; layer_ < config_.num_hidden_layers; ++layer_) {
    const Vector h = layer_ == 0 ? prefix_
                                 : mix(layer_values("self_attention_res_norm.weight"),
                                       layer_values("self_attention_res_proj.weight"));
    if (layer_ % config_.attn_res_block_size == 0) {
      snapshots_.push_back(prefix_);
      prefix_.clear();
    }
    const Vector x =
        plain_rms_norm(h, layer_values("input_layernorm.weight"), config_.rms_norm_eps);
    add_to_prefix(config_.is_mla[layer_] ? mla(x) : kda(x));
    const Vector z = plain_rms_norm(
        mix(layer_values("mlp_res_norm.weight"), layer_values("mlp_res_proj.weight")),
        layer_values("post_attention_layernorm.weight"), config_.rms_norm_eps);
    add_to_prefix(layer_ < config_.dense_layers ? gated("mlp", z) : moe(z));
  }
  const Vector h = mix(at(kModel + "output_attn_res_norm.weight").values.data(),
                       at(kModel + "output_attn_res_proj.weight").values.data());
  return product("language_model.lm_head.weight",
                 plain_rms_norm(h, at(kModel + "norm.weight").values.data(), config_.rms_norm_eps));
}

void PlainModel::add_to_prefix(const Vector& y) {
  if (prefix_.empty()) {
    prefix_ = y;
  } else {
    for (size_t i = 0; i < y.size(); ++i) prefix_[i] = prefix_[i] + y[i];
  }
}

/// The softmax mixture of the raw snapshots by age and the running sum, which comes last.
Vector PlainModel::mix(const float* norm, const float* proj) const {
  const size_t n = prefix_.size();
  std::vector<Vector> sources = snapshots_;
  sources.push_back(prefix_);
  Vector f(n);
  for (size_t i = 0; i < n; ++i) f[i] = norm[i] * proj[i];
  Vector p;
  for (const Vector& source : sources) {
    const float mean = plain_dot(source.data(), source.data(), n) / static_cast<float>(n);
    p.push_back(plain_dot(source.data(), f.data(), n) *
                (1.0f / std::sqrt(mean + config_.rms_norm_eps)));
  }
  const float m = *std::max_element(p.begin(), p.end());
  float sum = 0.0f;
  for (float& score : p) {
    score = score - m;
    kernels_.exp(&score, 1, &score);
    sum = sum + score;
  }
  Vector out(n, 0.0f);
  for (size_t s = 0; s < sources.size(); ++s) {
    for (size_t i = 0; i < n; ++i) out[i] = std::fma(p[s] / sum, sources[s][i], out[i]);
  }
  return out;
}

Vector PlainModel::convolve(const char* letter, size_t which, Vector row) {
  std::vector<Vector>& tail = memories_[layer_].tails[which];
  tail.push_back(std::move(row));
  const std::string name = std::string("self_attn.") + letter + "_conv1d.weight";
  const float* taps = layer_values(name);
  const size_t count = config_.conv_kernel;
  Vector z(config_.kda_width(), 0.0f), activated(z.size());
  for (size_t c = 0; c < z.size(); ++c) {
    for (size_t j = 0; j < count; ++j) z[c] = std::fma(taps[c * count + j], tail[j][c], z[c]);
  }
  kernels_.sigmoid(z.data(), z.size(), activated.data());
  for (size_t c = 0; c < z.size(); ++c) activated[c] = z[c] * activated[c];
  tail.erase(tail.begin());
  return activated;
}

Vector PlainModel::kda(const Vector& x) {
  const size_t heads = config_.kda_heads, dim = config_.kda_head_dim;
  Vector rows[3];
  const char* letters[] = {"q", "k", "v"};
  for (size_t i = 0; i < 3; ++i) {
    rows[i] =
        convolve(letters[i], i, layer_product(std::string("self_attn.") + letters[i] + "_proj", x));
  }
  const Vector z = layer_product("self_attn.f_b_proj", layer_product("self_attn.f_a_proj", x));
  Vector beta = layer_product("self_attn.b_proj", x);
  Vector gate = layer_product("self_attn.g_proj", x);
  kernels_.sigmoid(beta.data(), heads, beta.data());
  kernels_.sigmoid(gate.data(), gate.size(), gate.data());
  Vector out;
  for (size_t h = 0; h < heads; ++h) {
    float* q = rows[0].data() + h * dim;
    float* k = rows[1].data() + h * dim;
    const float rq = 1.0f / std::sqrt(plain_dot(q, q, dim) + 1e-6f);
    const float rk = 1.0f / std::sqrt(plain_dot(k, k, dim) + 1e-6f);
    Vector decay(dim), o(dim, 0.0f);
    float exp_a;
    kernels_.exp(layer_values("self_attn.A_log") + h, 1, &exp_a);
    for (size_t i = 0; i < dim; ++i) {
      q[i] = (q[i] * rq) * inverse_root(dim);
      k[i] = k[i] * rk;
      decay[i] = exp_a * (z[h * dim + i] + layer_values("self_attn.dt_bias")[h * dim + i]);
    }
    kernels_.sigmoid(decay.data(), dim, decay.data());
    for (float& d : decay) d = config_.gate_lower_bound * d;
    kernels_.exp(decay.data(), dim, decay.data());
    kda_position(h, q, k, rows[2].data() + h * dim, decay.data(), beta[h], o.data());
    o = plain_rms_norm(o, layer_values("self_attn.o_norm.weight"), config_.rms_norm_eps);
    for (size_t i = 0; i < dim; ++i) out.push_back(o[i] * gate[h * dim + i]);
  }
  return layer_product("self_attn.o_proj", out);
}

/// Decay, read, write, read; `out` holds zeros before.
void PlainModel::kda_position(size_t head, const float* q, const float* k, const float* v,
                              const float* decay, float beta, float* out) {
  const size_t dim = config_.kda_head_dim;
  float* state = memories_[layer_].state.data() + head * dim * dim;
  for (size_t c = 0; c < dim; ++c) {
    float r = 0.0f;
    for (size_t i = 0; i < dim; ++i) {
      float& s = state[i * dim + c];
      s = decay[i] * s;
      r = std::fma(k[i], s, r);
    }
    const float delta = beta * (v[c] - r);
    for (size_t i = 0; i < dim; ++i) {
      float& s = state[i * dim + c];
      s = std::fma(k[i], delta, s);
      out[c] = std::fma(q[i], s, out[c]);
    }
  }
}

Vector PlainModel::mla(const Vector& x) {
  const model::Config& c = config_;
  const size_t nope = c.qk_nope_head_dim, rope = c.qk_rope_head_dim, rank = c.kv_lora_rank;
  const Vector q_a = plain_rms_norm(layer_product("self_attn.q_a_proj", x),
                                    layer_values("self_attn.q_a_layernorm.weight"), c.rms_norm_eps);
  const Vector q = layer_product("self_attn.q_b_proj", q_a);
  const Vector kv = layer_product("self_attn.kv_a_proj_with_mqa", x);
  const auto latent_end = kv.begin() + static_cast<ptrdiff_t>(rank);
  Vector row = plain_rms_norm(Vector(kv.begin(), latent_end),
                              layer_values("self_attn.kv_a_layernorm.weight"), c.rms_norm_eps);
  row.insert(row.end(), latent_end, kv.end());
  memories_[layer_].cache.push_back(row);

  const float* kv_b = layer_values("self_attn.kv_b_proj.weight");
  Vector out;
  for (size_t h = 0; h < c.mla_heads; ++h) {
    const float* of_head = kv_b + h * (nope + c.v_head_dim) * rank;
    const float* q_head = q.data() + h * (nope + rope);
    Vector query(rank, 0.0f);
    for (size_t i = 0; i < nope; ++i) {
      for (size_t l = 0; l < rank; ++l) {
        query[l] = std::fma(q_head[i], of_head[i * rank + l], query[l]);
      }
    }
    query.insert(query.end(), q_head + nope, q_head + nope + rope);
    const Vector latent = attend(query);
    for (size_t v = 0; v < c.v_head_dim; ++v) {
      out.push_back(plain_dot(of_head + (nope + v) * rank, latent.data(), rank));
    }
  }
  Vector gate = layer_product("self_attn.g_proj", x);
  kernels_.sigmoid(gate.data(), gate.size(), gate.data());
  for (size_t i = 0; i < out.size(); ++i) out[i] = out[i] * gate[i];
  return layer_product("self_attn.o_proj", out);
}

/// The attended latent of a query over all cached rows, by tiles of 256 positions.
Vector PlainModel::attend(const Vector& query) const {
  const std::vector<Vector>& cache = memories_[layer_].cache;
  const size_t rank = config_.kv_lora_rank;
  const auto exp = [&](float x) {
    kernels_.exp(&x, 1, &x);
    return x;
  };
  float maximum = -std::numeric_limits<float>::infinity(), total = 0.0f;
  Vector sums(rank, 0.0f);
  for (size_t begin = 0; begin < cache.size(); begin += 256) {
    Vector scores;
    for (size_t p = begin; p < std::min(begin + 256, cache.size()); ++p) {
      scores.push_back(plain_dot(query.data(), cache[p].data(), query.size()) *
                       inverse_root(config_.q_head_dim()));
    }
    const float before = maximum;
    for (float score : scores) maximum = std::max(maximum, score);
    const float rescale = exp(before - maximum);
    total = total * rescale;
    for (float& sum : sums) sum = sum * rescale;
    for (size_t p = 0; p < scores.size(); ++p) {
      const float e = exp(scores[p] - maximum);
      total = total + e;
      for (size_t i = 0; i < rank; ++i) sums[i] = std::fma(e, cache[begin + p][i], sums[i]);
    }
  }
  for (float& sum : sums) sum = sum / total;
  return sums;
}

Vector PlainModel::situ(const Vector& gate, const Vector& up) const {
  Vector out(gate.size());
  kernels_.situ(gate.data(), up.data(), gate.size(), config_.situ_beta, config_.situ_linear_beta,
                out.data());
  return out;
}

Vector PlainModel::gated(const std::string& part, const Vector& x) const {
  return layer_product(part + ".down_proj", situ(layer_product(part + ".gate_proj", x),
                                                 layer_product(part + ".up_proj", x)));
}

/// The chosen experts with their weights, by number.
std::map<uint32_t, float> PlainModel::route(const Vector& x) const {
  Vector s = layer_product("block_sparse_moe.gate", x);
  kernels_.sigmoid(s.data(), s.size(), s.data());
  const float* bias = layer_values("block_sparse_moe.gate.e_score_correction_bias");
  std::vector<uint32_t> order(s.size());
  for (size_t e = 0; e < order.size(); ++e) order[e] = static_cast<uint32_t>(e);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return s[a] + bias[a] > s[b] + bias[b]; });
  order.resize(config_.experts_per_token);
  std::sort(order.begin(), order.end());
  float sum = 0.0f;
  for (uint32_t e : order) sum = sum + s[e];
  const float denominator = sum + 1e-20f;
  std::map<uint32_t, float> weights;
  for (uint32_t e : order) weights[e] = (s[e] / denominator) * config_.routed_scaling_factor;
  return weights;
}

Vector PlainModel::moe(const Vector& x) const {
  const std::string moe = "block_sparse_moe.";
  const Vector z = layer_product(moe + "routed_expert_down_proj", x);
  Vector u(z.size(), 0.0f);
  for (const auto& [e, weight] : route(x)) {
    const std::string expert = kModel + "layers." + std::to_string(layer_) + "." + moe +
                               "experts." + std::to_string(e) + ".";
    const Vector hidden = situ(expert_product(expert + "w1", z), expert_product(expert + "w3", z));
    const Vector y = expert_product(expert + "w2", hidden);
    for (size_t i = 0; i < u.size(); ++i) u[i] = std::fma(weight, y[i], u[i]);
  }
  const float* norm = layer_values(moe + "routed_expert_norm.weight");
  Vector routed =
      layer_product(moe + "routed_expert_up_proj", plain_rms_norm(u, norm, config_.rms_norm_eps));
  const Vector shared = gated(moe + "shared_experts", x);
  for (size_t i = 0; i < routed.size(); ++i) routed[i] = routed[i] + shared[i];
  return routed;
}

}  // namespace k3::test
