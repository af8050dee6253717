// What is fuzzed: each target takes any bytes and returns, with an Error caught; anything else that
// happens is a finding. libFuzzer drives them (fuzzer.cpp), and the tests replay the kept corpus.
#pragma once

#include <span>
#include <string_view>

namespace k3::fuzz {

struct Target {
  std::string_view name;  // of the folder in tests/data/corpus too
  void (*run)(std::string_view bytes);
};

std::span<const Target> targets();

// Those with a source file of their own.
void chunk(std::string_view bytes);
void snapshot(std::string_view bytes);

}  // namespace k3::fuzz
