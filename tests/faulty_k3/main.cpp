// The program, but for its reader of blocks: this one injects the faults that K3_TEST_FAULTS names,
// such as "hang_read=120,interrupts=1". Tests run it to see what a command does about them.
//
// It defines io::make_reader, so that the linker never takes the one of the library.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "commands/app.h"
#include "io/block_reader.h"
#include "support/fault_reader.h"

namespace k3 {
namespace {

constexpr size_t kDepth = 16;

struct Injection {
  test::Faults faults;
  uint64_t interrupts = 0;  // SIGINTs that the program sends itself once hang_read hangs
};

Injection parse(std::string text) {
  Injection injection;
  while (!text.empty()) {
    const size_t equals = text.find('='), comma = std::min(text.find(','), text.size());
    const std::string name = text.substr(0, equals);
    const uint64_t value = std::stoull(text.substr(equals + 1, comma - equals - 1));
    if (name == "fail_read") injection.faults.fail_read = value;
    if (name == "hang_read") injection.faults.hang_read = value;
    if (name == "interrupts") injection.interrupts = value;
    text.erase(0, comma + 1);
  }
  return injection;
}

void interrupt_when_hanging(std::shared_ptr<test::FaultControl> control, uint64_t interrupts) {
  while (!control->hanging) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (uint64_t i = 0; i < interrupts; ++i) ::kill(::getpid(), SIGINT);
}

}  // namespace

std::unique_ptr<io::BlockReader> io::make_reader(size_t, std::string*) {
  const char* const text = std::getenv("K3_TEST_FAULTS");
  const Injection injection = parse(text == nullptr ? "" : text);
  auto control = std::make_shared<test::FaultControl>();
  if (injection.interrupts > 0) {
    std::thread(interrupt_when_hanging, control, injection.interrupts).detach();
  }
  return std::make_unique<test::FaultReader>(io::make_pread_reader(kDepth), injection.faults,
                                             control);
}

}  // namespace k3

int main(int argc, char** argv) {
  return k3::commands::run_app(argc, argv);
}
