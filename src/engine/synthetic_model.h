// A model of any shape whose weights are made up while they are "read": how a step is measured
// without a checkpoint. Everything above the reader is what a run uses: plan, ring, checksums,
// expert slots, kernels.
//
// Weights repeat one block of 4096 bytes, so that a buffer that was filled once need not be filled
// again and a read costs next to nothing; router and embedding differ from row to row, so that
// tokens choose different experts.
#pragma once

#include <memory>

#include "engine/opened_model.h"
#include "io/block_reader.h"
#include "model/config.h"

namespace k3::engine {

/// The shape of the released model.
model::Config official_shape();

/// Weight bytes that a step of one row uses, by kind.
struct StepBytes {
  double trunk = 0;  // matrices but head and router, and the small tensors
  double head = 0;
  double router = 0;
  double experts = 0;  // of one row
  double kda = 0;      // states, read and written
};

struct SyntheticModel {
  OpenedModel model;
  std::unique_ptr<io::BlockReader> reader;  // gives the bytes of `model`
  StepBytes step_bytes;
};

/// Error(kInternal) when the system gives no anonymous file.
SyntheticModel make_synthetic_model(const model::Config& config);

}  // namespace k3::engine
