#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace k3 {

void check_failed(const char* condition, const char* file, int line) {
  // stdio only: nothing that could allocate or fail a check itself.
  std::fprintf(stderr, "k3: internal fault: %s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace k3
