// What tests must know of a build with sanitizers: its processes hold several hundred megabytes
// before anything is done, and memory and address space are not the program's alone.
#pragma once

#include <cstdint>
#include <string>

namespace k3::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define K3_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define K3_SANITIZED 1
#endif
#endif
#ifndef K3_SANITIZED
#define K3_SANITIZED 0
#endif

inline constexpr bool kSanitized = K3_SANITIZED != 0;

/// A budget in bytes: so many for the run, and what a sanitizer holds beside it.
constexpr uint64_t budget_of(uint64_t bytes) {
  constexpr uint64_t kSanitizersShare = 2'000'000'000;
  return bytes + (kSanitized ? kSanitizersShare : 0);
}
/// The same as an argument of --budget.
inline std::string budget_text(uint64_t bytes) {
  return std::to_string(budget_of(bytes));
}

}  // namespace k3::test
