// The loop over an array in vectors of V (one of the types Vec), whose last step takes the lanes
// that are left and touches no memory beyond them.
#pragma once

#include <cstddef>

namespace k3::kernels {

/// Access to a whole vector.
template <class V>
struct Whole {
  static V load(const float* p) { return V::load(p); }
  static void store(float* p, V v) { v.store(p); }
};

/// Access to the first `count` lanes of a vector, 0 < count < V::kLanes.
template <class V>
struct Part {
  size_t count;
  V load(const float* p) const { return V::load_part(p, count); }
  void store(float* p, V v) const { v.store_part(p, count); }
};

/// body(i, access) for i = 0, kLanes, ... below n; access loads and stores the lanes i .. of an
/// array of n floats.
template <class V, class Body>
inline void for_each_vector(size_t n, Body body) {
  size_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) body(i, Whole<V>{});
  if constexpr (V::kLanes > 1) {
    if (i < n) body(i, Part<V>{n - i});
  }
}

/// The largest of `start` and x[0..n). A NaN of x is passed over.
template <class V>
inline float largest(const float* x, size_t n, float start) {
  V lanes = V::broadcast(start);
  size_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) lanes = max(V::load(x + i), lanes);
  float found[V::kLanes];
  lanes.store(found);
  for (const float lane : found) start = lane > start ? lane : start;
  for (; i < n; ++i) start = x[i] > start ? x[i] : start;
  return start;
}

}  // namespace k3::kernels
