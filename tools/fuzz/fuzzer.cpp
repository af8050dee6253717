// One libFuzzer program for each target: K3_FUZZ_TARGET is its name.
#include <cstddef>
#include <cstdint>

#include "tools/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const k3::fuzz::Target& target : k3::fuzz::targets()) {
    if (target.name == K3_FUZZ_TARGET) target.run({reinterpret_cast<const char*>(data), size});
  }
  return 0;
}
