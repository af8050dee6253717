#include "model/attn_res.h"

#include <array>

#include "base/check.h"

namespace k3::model {

bool attn_res_mix(const kernels::Kernels& kernels, std::span<const float* const> sources,
                  const float* f, size_t n, float eps, float* out) {
  K3_CHECK(sources.size() <= kAttnResSourcesMax);
  std::array<float, kAttnResSourcesMax> p;
  for (size_t s = 0; s < sources.size(); ++s) p[s] = kernels.attn_res_score(sources[s], f, n, eps);
  if (!kernels.all_finite(p.data(), sources.size())) return false;
  kernels.softmax(p.data(), sources.size());
  kernels.weighted_sum(sources.data(), p.data(), sources.size(), n, out);
  return true;
}

}  // namespace k3::model
