// Snapshots of a sequence of a small model.
#include <fstream>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "engine/snapshot.h"
#include "k3/error.h"
#include "tools/fuzz/input_file.h"
#include "tools/fuzz/sealed.h"
#include "tools/fuzz/targets.h"

namespace k3::fuzz {
namespace {

/// random-a with states of a few hundred bytes.
model::Config small_config() {
  std::ifstream in(K3_TEST_DATA "/random-a/config.json");
  Json json = Json::parse(in);
  json["text_config"]["linear_attn_config"]["num_heads"] = 1;
  json["text_config"]["linear_attn_config"]["head_dim"] = 4;
  return model::parse_config(json.dump(), "config.json");
}

/// Memory of exactly what the planner would give to a sequence of so many positions.
class Room {
 public:
  Room(const model::Config& config, uint64_t capacity)
      : kda_(model::SequenceState::kda_floats(config)),
        conv_(model::SequenceState::conv_floats(config)),
        cache_(model::SequenceState::cache_floats(config, capacity)),
        logits_(config.vocab_size),
        state_(config, capacity, {kda_, conv_, cache_}) {
    state_.reset();
  }
  engine::Sequence sequence() { return {.state = state_, .logits = logits_, .undo = {}}; }

 private:
  std::vector<float> kda_, conv_, cache_, logits_;
  model::SequenceState state_;
};

constexpr uint64_t kCapacityMax = 4096;

void load(std::string_view bytes) {
  static const model::Config config = small_config();
  const engine::SnapshotReader reader(file_of(bytes));
  K3_CHECK(reader.position() <= reader.ids().size());
  K3_CHECK(reader.begins(reader.ids()));
  if (reader.position() > kCapacityMax) return;
  Room room(config, reader.position());
  engine::Sequence sequence = room.sequence();
  try {
    reader.restore(config, sequence);
    K3_CHECK(sequence.state.position() == reader.position());
    K3_CHECK(sequence.has_logits == reader.has_logits());
  } catch (const Error&) {
    K3_CHECK(sequence.state.position() == 0 && !sequence.has_logits);
    throw;
  }
}

}  // namespace

void snapshot(std::string_view bytes) {
  try {
    load(bytes);
  } catch (const Error&) {
    // As most damage does; sealed, some of it goes further.
  }
  load(sealed_snapshot(bytes));
}

}  // namespace k3::fuzz
