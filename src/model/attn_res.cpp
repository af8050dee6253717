#include "model/attn_res.h"

#include <array>

#include "base/check.h"

namespace k3::model {

void attn_res_mix(const kernels::Kernels& kernels, std::span<const float* const> sources,
                  const float* f, size_t n, float eps, float* out) {
  K3_CHECK(sources.size() <= kAttnResSourcesMax);
  std::array<float, kAttnResSourcesMax> p;
  for (size_t s = 0; s < sources.size(); ++s) p[s] = kernels.attn_res_score(sources[s], f, n, eps);
  kernels.softmax(p.data(), sources.size());
  kernels.weighted_sum(sources.data(), p.data(), sources.size(), n, out);
}

}  // namespace k3::model
