// The model as docs/numeric-contract.md has it, written out once more as plainly as it goes: one
// token at a time, whole vectors, every sum a loop. What the engine computes in chunks, batches
// and lanes must have the same bits.
//
// exp, sigmoid and SiTU are the scalar kernels'; everything else is written here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "kernels/table.h"
#include "model/config.h"

namespace k3::test {

using Vector = std::vector<float>;

/// The dot product of bf16 and fp32 weights: 16 lanes of pairs, padded with zeros.
float plain_dot(const float* w, const float* x, size_t n);
/// The dot product of one MXFP4 row: `w` without scales, `scales` one for 32 columns.
float plain_dot(const float* w, const float* scales, const float* x, size_t n);
/// (x*r)*w with r = 1/sqrt(dot(x,x)/n + eps).
Vector plain_rms_norm(const Vector& x, const float* w, float eps);

class PlainModel {
 public:
  explicit PlainModel(const std::filesystem::path& directory);

  /// Takes one token in; the logits after it.
  Vector take(uint32_t id);

 private:
  struct Tensor {
    std::vector<uint64_t> shape;
    Vector values;             // BF16, F32; the nibbles of weight_packed
    std::vector<uint8_t> raw;  // U8 as stored
  };
  /// What a layer remembers.
  struct Memory {
    std::vector<Vector> tails[3];  // KDA: pre-convolution q, k, v, oldest first
    Vector state;                  // KDA: [heads, D, D]
    std::vector<Vector> cache;     // MLA: a row for each position
  };

  void read_shard(const std::filesystem::path& path);
  const Tensor& at(const std::string& name) const;
  const float* layer_values(const std::string& suffix) const;
  Vector product(const std::string& name, const Vector& x) const;
  Vector layer_product(const std::string& suffix, const Vector& x) const;
  Vector expert_product(const std::string& name, const Vector& x) const;
  Vector mix(const float* norm, const float* proj) const;
  Vector kda(const Vector& x);
  Vector convolve(const char* letter, size_t which, Vector row);
  void kda_position(size_t head, const float* q, const float* k, const float* v, const float* decay,
                    float beta, float* out);
  Vector mla(const Vector& x);
  Vector attend(const Vector& query) const;
  Vector situ(const Vector& gate, const Vector& up) const;
  Vector gated(const std::string& part, const Vector& x) const;
  Vector moe(const Vector& x) const;
  std::map<uint32_t, float> route(const Vector& x) const;
  void add_to_prefix(const Vector& y);

  model::Config config_;
  const kernels::Kernels& kernels_;  // for exp, sigmoid and SiTU
  std::map<std::string, Tensor> tensors_;
  std::vector<Memory> memories_;
  // Of the token at hand.
  uint32_t layer_ = 0;
  std::vector<Vector> snapshots_;
  Vector prefix_;
};

}  // namespace k3::test
