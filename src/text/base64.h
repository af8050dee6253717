// Standard base64 (RFC 4648 section 4), read strictly.
#pragma once

#include <string>
#include <string_view>

namespace k3::text {

/// Sets `out` to the bytes. False where the text is not the one canonical encoding of any bytes:
/// a foreign character, a length that is no multiple of four, padding missing, misplaced or with
/// bits left in the character before it.
bool decode_base64(std::string_view text, std::string& out);

}  // namespace k3::text
