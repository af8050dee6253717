#include "engine/synthetic_model.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "base/check.h"
#include "base/hash.h"
#include "base/unique_fd.h"
#include "io/direct_file.h"
#include "k3/error.h"
#include "model/state.h"
#include "model/trunk_order.h"
#include "weights/trunk_layout.h"
#include "weights/trunk_manifest.h"

namespace k3::engine {
namespace {

using model::Role;
using weights::DType;

constexpr uint64_t kBlock = io::kBlockSize;
using Block = std::array<std::byte, kBlock>;

uint64_t mix_bits(uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// Numbers of either sign from 2^-7 to 2^-6, in bf16; read in pairs they are float32 of that size.
Block weight_block(uint64_t seed) {
  Block block;
  for (uint64_t i = 0; i < kBlock / 2; ++i) {
    const uint64_t random = mix_bits(seed * kBlock + i + 1);
    const auto number = static_cast<uint16_t>(0x3C00 | (random & 0x807F));
    std::memcpy(block.data() + 2 * i, &number, 2);
  }
  return block;
}

/// Bytes that are fit for MXFP4 nibbles and for their scales (2^-11 to 2^-4) alike.
Block expert_block() {
  Block block;
  for (uint64_t i = 0; i < kBlock; ++i)
    block[i] = static_cast<std::byte>(0x74 + (mix_bits(i + 1) & 7));
  return block;
}

/// What lies where: the virtual file is divided into regions of blocks of one kind.
class Content {
 public:
  enum Kind : uint8_t { kUnknown, kWeights, kExperts, kVaried };

  Content() : weights_(weight_block(0)), experts_(expert_block()), varied_(kVariedBlocks) {
    for (uint64_t i = 0; i < kVariedBlocks; ++i) varied_[i] = weight_block(i + 1);
  }

  struct Region {
    uint64_t begin;  // a multiple of kBlock
    Kind kind;
  };

  /// In ascending order; what lies before the first is kWeights, neighbours of one kind are one.
  void add_region(Region region) {
    if (regions_.back().kind != region.kind) regions_.push_back(region);
  }

  /// Calls use(begin, end, kind) for each region of [begin, end).
  template <typename Use>
  void each_region(uint64_t begin, uint64_t end, Use&& use) const {
    auto next = std::upper_bound(regions_.begin(), regions_.end(), begin,
                                 [](uint64_t at, const Region& r) { return at < r.begin; });
    while (begin < end) {
      const uint64_t to = next == regions_.end() ? end : std::min(end, next->begin);
      use(begin, to, (next - 1)->kind);
      begin = to;
      if (next != regions_.end()) ++next;
    }
  }

  const Block& block(uint64_t offset, Kind kind) const {
    if (kind == kVaried) return varied_[mix_bits(offset / kBlock) % kVariedBlocks];
    return kind == kExperts ? experts_ : weights_;
  }

 private:
  static constexpr uint64_t kVariedBlocks = 509;
  Block weights_;
  Block experts_;
  std::vector<Block> varied_;
  std::vector<Region> regions_{{0, kWeights}};
};

/// Remembers of which kind the blocks of memory are that it filled.
class FilledBlocks {
 public:
  /// True when the block at this address is of this kind already; from now on it is.
  bool mark(const std::byte* at, Content::Kind kind) {
    const auto block = reinterpret_cast<uintptr_t>(at) / kBlock;
    if (block / kGroup != group_number_ || group_ == nullptr) {
      group_number_ = block / kGroup;
      group_ = &groups_[group_number_];
    }
    uint8_t& known = (*group_)[block % kGroup];
    const bool same = known == kind && kind != Content::kVaried;
    known = kind;
    return same;
  }

 private:
  static constexpr uintptr_t kGroup = 4096;
  using Group = std::array<uint8_t, kGroup>;
  std::unordered_map<uintptr_t, Group> groups_;
  uintptr_t group_number_ = 0;
  Group* group_ = nullptr;
};

/// Every read is complete when it is submitted.
class SyntheticReader : public io::BlockReader {
 public:
  SyntheticReader(std::shared_ptr<const Content> content, UniqueFd file)
      : content_(std::move(content)), file_(std::move(file)) {}

  std::string_view name() const override { return "synthetic"; }
  size_t depth() const override { return 64; }

  void submit(std::span<const io::ReadRequest> requests) override {
    for (const io::ReadRequest& request : requests) {
      fill(request);
      completions_.push_back({request.tag, request.length});
    }
  }

  size_t wait(std::span<io::ReadCompletion> out, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    if (completions_.empty()) woken_up_.wait_for(lock, timeout, [this] { return woken_; });
    woken_ = false;
    const size_t count = std::min(out.size(), completions_.size());
    const auto end = completions_.begin() + static_cast<ptrdiff_t>(count);
    std::copy(completions_.begin(), end, out.begin());
    completions_.erase(completions_.begin(), end);
    return count;
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    woken_up_.notify_one();
  }

 private:
  void fill(const io::ReadRequest& request) {
    K3_CHECK(request.offset % kBlock == 0 && request.length % kBlock == 0);
    content_->each_region(request.offset, request.offset + request.length,
                          [&](uint64_t begin, uint64_t end, Content::Kind kind) {
                            for (uint64_t at = begin; at < end; at += kBlock) {
                              std::byte* to = request.buffer + (at - request.offset);
                              if (!filled_.mark(to, kind)) {
                                std::memcpy(to, content_->block(at, kind).data(), kBlock);
                              }
                            }
                          });
  }

  std::shared_ptr<const Content> content_;
  UniqueFd file_;  // what the engine opens in place of trunk and shards
  FilledBlocks filled_;
  std::deque<io::ReadCompletion> completions_;  // of the submitting thread alone
  std::mutex mutex_;
  std::condition_variable woken_up_;
  bool woken_ = false;  // guarded by mutex_
};

/// In released checkpoints these are float32, all else is bf16.
DType dtype_of(Role role) {
  constexpr Role kF32[] = {Role::kALog,  Role::kDtBias, Role::kConvQ,     Role::kConvK,
                           Role::kConvV, Role::kONorm,  Role::kRouterBias};
  return std::find(std::begin(kF32), std::end(kF32), role) != std::end(kF32) ? DType::kF32
                                                                             : DType::kBf16;
}

/// Lays the model out in one virtual file: trunk, embedding table, experts.
class Builder {
 public:
  explicit Builder(const model::Config& config)
      : config_(config), content_(std::make_shared<Content>()) {}

  SyntheticModel build() {
    add_tensors();
    place_chunks();
    place_embedding();
    place_experts();
    UniqueFd file(::memfd_create("k3-synthetic", MFD_CLOEXEC));
    if (!file.valid() || ::ftruncate(file.get(), static_cast<off_t>(end_)) != 0) {
      throw Error(ErrorKind::kInternal, fmt::format("making an anonymous file: {}; no weights can "
                                                    "be made up",
                                                    std::strerror(errno)));
    }
    const std::filesystem::path directory("/proc/self/fd");
    const std::string name = std::to_string(file.get());
    manifest_.shards.push_back(
        {manifest_.add_string(name), static_cast<uint32_t>(name.size()), end_, 0, 0});
    weights::count_records(manifest_);
    return {OpenedModel{directory, config_,
                        weights::TrunkFile::in_memory(directory / name, manifest_, end_)},
            std::make_unique<SyntheticReader>(content_, std::move(file)), bytes_};
  }

 private:
  void add_tensors() {
    const std::vector<weights::TrunkTensor> order = model::trunk_order(config_);
    std::vector<DType> dtypes;
    for (const weights::TrunkTensor& tensor : order) {
      dtypes.push_back(dtype_of(static_cast<Role>(tensor.role)));
      weights::TensorRecord record{};
      record.layer = tensor.layer;
      record.role = tensor.role;
      record.dtype = static_cast<uint8_t>(dtypes.back());
      record.name_offset = manifest_.add_string(tensor.name);
      record.name_bytes = static_cast<uint32_t>(tensor.name.size());
      record.rows = tensor.rows;
      record.cols = tensor.cols;
      manifest_.tensors.push_back(record);
    }
    weights::TrunkLayout layout = weights::lay_out_trunk(order, dtypes);
    manifest_.chunks = std::move(layout.chunks);
    manifest_.segments = std::move(layout.segments);
    manifest_.header.config_fingerprint = config_.fingerprint();
  }

  void place_chunks() {
    for (weights::ChunkRecord& chunk : manifest_.chunks) {
      const weights::SegmentRecord& segment = manifest_.segments[chunk.segment_begin];
      const auto role = static_cast<Role>(manifest_.tensors[segment.tensor].role);
      const auto kind = role == Role::kRouter ? Content::kVaried : Content::kWeights;
      content_->add_region({end_, kind});
      chunk.offset = end_;
      chunk.checksum = checksum_of(chunk, kind);
      end_ = weights::align_up(end_ + chunk.stored_bytes, kBlock);
      double& bytes = role == Role::kRouter   ? bytes_.router
                      : role == Role::kLmHead ? bytes_.head
                                              : bytes_.trunk;
      bytes += static_cast<double>(chunk.raw_bytes);
    }
  }

  uint64_t checksum_of(const weights::ChunkRecord& chunk, Content::Kind kind) {
    const auto known = checksums_.find(chunk.stored_bytes);
    if (kind == Content::kWeights && known != checksums_.end()) return known->second;
    const uint64_t digest = content_checksum(chunk.offset, chunk.stored_bytes, kind);
    if (kind == Content::kWeights) checksums_.emplace(chunk.stored_bytes, digest);
    return digest;
  }

  uint64_t content_checksum(uint64_t offset, uint64_t bytes, Content::Kind kind) {
    Checksum sum;
    for (uint64_t at = offset; at < offset + bytes;) {
      const uint64_t end = std::min(at / kBlock * kBlock + kBlock, offset + bytes);
      sum.update(std::span(content_->block(at, kind)).subspan(at % kBlock, end - at));
      at = end;
    }
    return sum.digest();
  }

  void place_embedding() {
    weights::ManifestHeader& header = manifest_.header;
    header.embedding_dtype = static_cast<uint32_t>(DType::kBf16);
    header.embedding_offset = end_;
    header.embedding_rows = config_.vocab_size;
    header.embedding_cols = config_.hidden_size;
    content_->add_region({end_, Content::kVaried});
    const uint64_t row_bytes = weights::embedding_row_bytes(header);
    for (uint64_t row = 0; row < header.embedding_rows; ++row) {
      manifest_.embedding_checksums.push_back(
          content_checksum(end_ + row * row_bytes, row_bytes, Content::kVaried));
    }
    end_ = weights::align_up(end_ + header.embedding_rows * row_bytes, kBlock);
  }

  void place_experts() {
    weights::ManifestHeader& header = manifest_.header;
    const weights::ExpertShape shape = model::checkpoint_request(config_).expert_shape;
    std::copy_n(shape.part_bytes, weights::kExpertParts, header.expert_part_bytes);
    header.expert_layer_count = config_.moe_layers();
    header.experts_per_layer = config_.moe_layers() > 0 ? config_.num_experts : 0;
    content_->add_region({end_, Content::kExperts});
    const uint64_t count = uint64_t{header.expert_layer_count} * header.experts_per_layer;
    for (uint64_t i = 0; i < count; ++i) {
      weights::ExpertRecord record{};
      for (size_t part = 0; part < weights::kExpertParts; ++part) {
        record.offset[part] = end_;
        end_ += header.expert_part_bytes[part];
      }
      manifest_.experts.push_back(record);
      end_ = weights::align_up(end_, kBlock);
    }
    for (uint64_t bytes : header.expert_part_bytes) {
      bytes_.experts +=
          static_cast<double>(bytes * config_.moe_layers() * config_.experts_per_token);
    }
    bytes_.kda = 8.0 * static_cast<double>(model::SequenceState::kda_floats(config_));
  }

  const model::Config& config_;
  std::shared_ptr<Content> content_;
  weights::Manifest manifest_;
  std::unordered_map<uint64_t, uint64_t> checksums_;  // of kWeights, by length
  uint64_t end_ = weights::kTrunkAlignment;
  StepBytes bytes_;
};

}  // namespace

model::Config official_shape() {
  model::Config config{.hidden_size = 7168,
                       .num_hidden_layers = 93,
                       .vocab_size = 163840,
                       .rms_norm_eps = 1e-5f,
                       .max_position_embeddings = 1048576,
                       .mla_heads = 96,
                       .q_lora_rank = 1536,
                       .kv_lora_rank = 512,
                       .qk_nope_head_dim = 128,
                       .qk_rope_head_dim = 64,
                       .v_head_dim = 128,
                       .kda_heads = 96,
                       .kda_head_dim = 128,
                       .conv_kernel = 4,
                       .gate_lower_bound = -5,
                       .dense_layers = 1,
                       .intermediate_size = 33792,
                       .num_experts = 896,
                       .experts_per_token = 16,
                       .num_shared_experts = 2,
                       .moe_intermediate_size = 3072,
                       .latent_size = 3584,
                       .routed_scaling_factor = 1,
                       .situ_beta = 4,
                       .situ_linear_beta = 25,
                       .attn_res_block_size = 12,
                       .is_mla = {},
                       .eos_ids = {}};
  // Every fourth layer attends to the latent cache, and the last one.
  for (uint32_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    config.is_mla.push_back(layer % 4 == 3 || layer + 1 == config.num_hidden_layers);
  }
  return config;
}

SyntheticModel make_synthetic_model(const model::Config& config) {
  return Builder(config).build();
}

}  // namespace k3::engine
