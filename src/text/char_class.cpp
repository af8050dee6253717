#include "text/char_class.h"

#include <unicode/uchar.h>
#include <unicode/uscript.h>

namespace k3::text {
namespace {

constexpr uint32_t kCased = U_GC_LU_MASK | U_GC_LL_MASK | U_GC_LT_MASK;
constexpr uint32_t kUncased = U_GC_LM_MASK | U_GC_LO_MASK | U_GC_M_MASK;  // both upper and lower

bool is_han(UChar32 code) {
  UErrorCode status = U_ZERO_ERROR;
  return uscript_getScript(code, &status) == USCRIPT_HAN && U_SUCCESS(status);
}

CharClass case_class(uint32_t category) {
  if (category & kUncased) return kUpper | kLower;
  if (category & (U_GC_LU_MASK | U_GC_LT_MASK)) return kUpper;
  return category & kCased ? kLower : 0;
}

}  // namespace

CharClass classify(char32_t code) {
  const auto point = static_cast<UChar32>(code);
  const uint32_t category = U_GET_GC_MASK(point);
  int bits = is_han(point) ? kHan : case_class(category);
  if (category & U_GC_L_MASK) bits |= kLetter;
  if (category & U_GC_N_MASK) bits |= kNumber;
  if (u_isUWhiteSpace(point)) bits |= kSpace | kBlank;
  if (code >= 0x1C && code <= 0x1F) bits |= kBlank;
  if (code == '\r' || code == '\n') bits |= kNewline;
  return static_cast<CharClass>(bits);
}

}  // namespace k3::text
