#include "support/plain_tokenizer.h"

#include <unicode/unistr.h>

#include <stdexcept>

namespace k3::test {

std::string to_utf8(const std::u32string& text) {
  std::string out;
  icu::UnicodeString::fromUTF32(reinterpret_cast<const UChar32*>(text.data()),
                                static_cast<int32_t>(text.size()))
      .toUTF8String(out);
  return out;
}

icu::UnicodeSet unicode_set(const char* pattern) {
  UErrorCode status = U_ZERO_ERROR;
  icu::UnicodeSet set(icu::UnicodeString::fromUTF8(pattern), status);
  if (U_FAILURE(status)) throw std::runtime_error(pattern);
  return set;
}

std::vector<std::string> PlainPattern::split(const std::u32string& text) const {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    std::optional<size_t> end;
    for (size_t i = 0; i < alternatives_.size() && !end; ++i) {
      end = match(alternatives_[i], 0, text, at);
    }
    if (!end) throw std::runtime_error("no alternative matches");
    out.push_back(to_utf8(text.substr(at, *end - at)));
    at = *end;
  }
  return out;
}

std::optional<size_t> PlainPattern::match(const Alternative& alternative, size_t index,
                                          const std::u32string& text, size_t at) const {
  if (index == alternative.elements.size()) return match_tail(alternative.tail, text, at);
  const Element& element = alternative.elements[index];
  size_t count = 0;
  while (count < element.high && at + count < text.size() &&
         element.set.contains(static_cast<UChar32>(text[at + count]))) {
    ++count;
  }
  for (; count + 1 > element.low; --count) {
    if (const auto end = match(alternative, index + 1, text, at + count)) return end;
    if (count == 0) break;
  }
  return std::nullopt;
}

std::optional<size_t> PlainPattern::match_tail(Tail tail, const std::u32string& text,
                                               size_t at) const {
  if (tail == Tail::kNotBeforeNonSpace && at < text.size() &&
      !space_.contains(static_cast<UChar32>(text[at]))) {
    return std::nullopt;
  }
  if (tail != Tail::kContraction) return at;
  for (const char* contraction : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    const icu::UnicodeString wanted(contraction);
    icu::UnicodeString found = icu::UnicodeString::fromUTF8(
        to_utf8(text.substr(at, static_cast<size_t>(wanted.length()))));
    if (found.foldCase() == wanted) return at + static_cast<size_t>(wanted.length());
  }
  return at;
}

std::vector<uint32_t> merge_plainly(const std::map<std::string, uint32_t>& ranks,
                                    const std::string& bytes) {
  if (const auto whole = ranks.find(bytes); whole != ranks.end()) return {whole->second};
  std::vector<std::string> parts;
  for (const char byte : bytes) parts.emplace_back(1, byte);
  for (;;) {
    size_t best = parts.size();
    uint32_t best_rank = UINT32_MAX;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found == ranks.end() || found->second >= best_rank) continue;
      best = i;
      best_rank = found->second;
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<uint32_t> ids;
  for (const std::string& part : parts) ids.push_back(ranks.at(part));
  return ids;
}

PlainTokenizer::PlainTokenizer(const text::Tokenizer& tokenizer) {
  for (uint32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    auto& tokens = tokenizer.is_special(id) ? specials_ : ranks_;
    tokens.emplace(tokenizer.token_bytes(id), id);
  }
}

std::vector<uint32_t> PlainTokenizer::encode(std::string_view text, text::Specials specials) const {
  std::string valid;
  icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())))
      .toUTF8String(valid);
  std::vector<uint32_t> ids;
  std::string ordinary;
  for (size_t at = 0; at < valid.size();) {
    std::optional<std::pair<std::string, uint32_t>> longest;  // the last of those that fit
    for (const auto& special : specials_) {
      if (valid.compare(at, special.first.size(), special.first) == 0) longest = special;
    }
    if (specials == text::Specials::kAsText || !longest) {
      ordinary += valid[at++];
      continue;
    }
    encode_ordinary(ordinary, ids);
    ordinary.clear();
    ids.push_back(longest->second);
    at += longest->first.size();
  }
  encode_ordinary(ordinary, ids);
  return ids;
}

void PlainTokenizer::encode_ordinary(const std::string& text, std::vector<uint32_t>& ids) const {
  const icu::UnicodeString units = icu::UnicodeString::fromUTF8(text);
  std::u32string characters(static_cast<size_t>(units.countChar32()), U'\0');
  UErrorCode status = U_ZERO_ERROR;
  units.toUTF32(reinterpret_cast<UChar32*>(characters.data()),
                static_cast<int32_t>(characters.size()), status);
  for (const std::string& match : pattern_.split(characters)) {
    const auto merged = merge_plainly(ranks_, match);
    ids.insert(ids.end(), merged.begin(), merged.end());
  }
}

}  // namespace k3::test
