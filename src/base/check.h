// Checks of our own mistakes: a failed one prints the place and aborts the process. Failures that a
// user can cause are k3::Error instead.
#pragma once

namespace k3 {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace k3

#define K3_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::k3::check_failed(#condition, __FILE__, __LINE__))
