// Checks of error messages: what they must mention.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "k3/error.h"

namespace k3::test {

inline ::testing::AssertionResult mentions(std::string_view message, std::string_view part) {
  if (message.find(part) != message.npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << message << "\" lacks \"" << part << "\"";
}

/// The message of the Error(kind) that `call` must throw; "" (and a failed test) if it does not.
template <typename Call>
std::string error_of(ErrorKind kind, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace k3::test
