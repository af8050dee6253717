// nlohmann/json with its exceptions turned into k3::Error: here and nowhere else.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "k3/error.h"

namespace k3 {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

/// Parses one JSON value; `what` (a file name) starts the message of Error(kCheckpoint).
/// Rejects duplicate keys of one object, bytes after the value and nesting deeper than 64.
Json parse_json(std::string_view text, const std::string& what);

/// Serialises for stdout: invalid UTF-8 becomes U+FFFD.
std::string dump_json(const OrderedJson& value);

}  // namespace k3
