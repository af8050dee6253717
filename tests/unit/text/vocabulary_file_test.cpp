#include "text/vocabulary_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "k3/error.h"
#include "text/base64.h"

namespace k3::text {
namespace {

std::string encode_base64(std::string_view bytes) {
  constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : 0);
    }
    for (size_t i = 0; i < 4; ++i) {
      out += at + i <= bytes.size() ? kAlphabet[bits >> (18 - 6 * i) & 63] : '=';
    }
  }
  return out;
}

/// The lines of a sound file: the single bytes, then "ab" as rank 256.
std::vector<std::string> sound_lines() {
  std::vector<std::string> lines;
  for (int byte = 0; byte < 256; ++byte) {
    const char token = static_cast<char>(byte);
    lines.push_back(fmt::format("{} {}", encode_base64({&token, 1}), byte));
  }
  lines.push_back(encode_base64("ab") + " 256");
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string file;
  for (const std::string& line : lines) file += line + "\n";
  return file;
}

template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint);
    return error.what();
  }
  return "no error";
}

std::string vocabulary_error(const std::string& file) {
  return error_of([&] { parse_vocabulary(file, "dir/tiktoken.model"); });
}

std::string error_with_line(size_t index, const std::string& line) {
  std::vector<std::string> lines = sound_lines();
  lines[index] = line;
  return vocabulary_error(joined(lines));
}

TEST(VocabularyFile, ASoundFileGivesBytesByRankAndRanksByBytes) {
  const Vocabulary vocabulary = parse_vocabulary(joined(sound_lines()), "tiktoken.model");
  ASSERT_EQ(vocabulary.size(), 257u);
  for (uint32_t rank = 0; rank < 257; ++rank) {
    EXPECT_EQ(vocabulary.rank_of(vocabulary.bytes(rank)), rank);
  }
  EXPECT_EQ(vocabulary.bytes(256), "ab");
  EXPECT_EQ(vocabulary.rank_of("ba"), Vocabulary::kNone);
  EXPECT_EQ(vocabulary.rank_of("aba"), Vocabulary::kNone);
}

TEST(VocabularyFile, TheOrderOfLinesAndTheLastLineEndDoNotMatter) {
  std::vector<std::string> lines = sound_lines();
  std::swap(lines[3], lines[256]);
  std::string file = joined(lines);
  file.pop_back();
  const Vocabulary vocabulary = parse_vocabulary(file, "tiktoken.model");
  EXPECT_EQ(vocabulary.bytes(3), "\x03");
  EXPECT_EQ(vocabulary.bytes(256), "ab");
}

TEST(VocabularyFile, EachDefectOfALineIsNamedWithFileLineFoundAndExpected) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "found '', expected BASE64 RANK"},
      {"YWI=", "found 'YWI=', expected BASE64 RANK"},
      {"YWI 256", "found 'YWI', expected a token in standard base64"},
      {"Y=I= 256", "found 'Y=I=', expected a token in standard base64"},
      {"YWJ= 256", "found 'YWJ=', expected a token in standard base64"},
      {"==== 256", "found '====', expected a token in standard base64"},
      {"YW-_ 256", "found 'YW-_', expected a token in standard base64"},
      {"\xFF\x01YW 256", "found '\\xff\\x01YW', expected a token in standard base64"},
      {" 256", "found an empty token, expected at least one byte"},
      {"YWI= ", "found rank '', expected 0 to 256"},
      {"YWI= -1", "found rank '-1', expected 0 to 256"},
      {"YWI= 256\r", "found rank '256\\x0d', expected 0 to 256"},
      {"YWI=  256", "found rank ' 256', expected 0 to 256"},
      {"YWI= 25x", "found rank '25x', expected 0 to 256"},
      {"YWI= 257", "found rank '257', expected 0 to 256"},
      {"YWI= 99999999999999999999", "found rank '99999999999999999999', expected 0 to 256"},
      {"YWI= 7", "found rank 7 again, expected each rank once"},
      {"YQ== 256", "found the token of rank 97 again, as rank 256, expected each token once"},
  };
  for (const auto& [line, expected] : cases) {
    EXPECT_EQ(error_with_line(256, line).find("dir/tiktoken.model: line 257: " + expected), 0u)
        << error_with_line(256, line);
  }
}

TEST(VocabularyFile, ALongDamagedLineIsShownInPart) {
  EXPECT_LT(error_with_line(256, std::string(100'000, 'x')).size(), 300u);
}

TEST(VocabularyFile, AMissingSingleByteIsNamed) {
  EXPECT_EQ(error_with_line(0xC3, "YWJj 195")
                .find("dir/tiktoken.model: found no token for the byte 0xc3 in 257 lines, "
                      "expected all 256 single bytes"),
            0u);
  EXPECT_NE(vocabulary_error("").find("byte 0x00 in 0 lines"), std::string::npos);
}

TEST(VocabularyFile, EveryTruncationIsFoundHereOrLeavesWholeLines) {
  const std::string file = joined(sound_lines());
  for (size_t size = 0; size < file.size(); ++size) {
    const std::string error = vocabulary_error(file.substr(0, size));
    // The last line without its end, and the single bytes without "ab", are sound files.
    const bool sound = size + 1 == file.size() || file.substr(size) == "YWI= 256\n" ||
                       file.substr(size) == "\nYWI= 256\n";
    EXPECT_EQ(error == "no error", sound) << size << ": " << error;
  }
}

TEST(Base64, TheVectorsOfTheStandardAreDecoded) {
  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"Zg==", "f"},
      {"Zm8=", "fo"},
      {"Zm9v", "foo"},
      {"Zm9vYg==", "foob"},
      {"Zm9vYmE=", "fooba"},
      {"Zm9vYmFy", "foobar"},
      {"//79", "\xFF\xFE\xFD"},
  };
  std::string bytes;
  for (const auto& [text, expected] : cases) {
    EXPECT_TRUE(decode_base64(text, bytes)) << text;
    EXPECT_EQ(bytes, expected);
  }
}

std::string specials_error(const std::string& json) {
  return error_of([&] { parse_special_tokens(json, "dir/tokenizer_config.json", 300); });
}

std::string named(const std::string& entries) {
  return "{\"added_tokens_decoder\":{" + entries + "}}";
}

TEST(SpecialTokensFile, NamedIdsHaveTheirLiteralsAndOthersAreReserved) {
  const SpecialTokens specials = parse_special_tokens(
      named(R"("300":{"content":"[BOS]"},"555":{"content":"\u4f60"})"), "config", 300);
  EXPECT_EQ(specials.size(), 256u);
  EXPECT_EQ(specials.literal(300), "[BOS]");
  EXPECT_EQ(specials.literal(301), "<|reserved_token_301|>");
  EXPECT_EQ(specials.literal(555), "\xE4\xBD\xA0");
}

TEST(SpecialTokensFile, EachDefectIsNamedWithFileAndKey) {
  const std::pair<std::string, std::string> cases[] = {
      {"[]", ": found no object \"added_tokens_decoder\""},
      {"{}", ": found no object \"added_tokens_decoder\""},
      {R"({"added_tokens_decoder":[]})", ": found no object \"added_tokens_decoder\""},
      {named(R"("299":{"content":"x"})"),
       ": added_tokens_decoder '299': found that id, expected 300 to 555"},
      {named(R"("556":{"content":"x"})"),
       ": added_tokens_decoder '556': found that id, expected 300 to 555"},
      {named(R"("-1":{"content":"x"})"), ": added_tokens_decoder '-1': found that id"},
      {named(R"("3e2":{"content":"x"})"), ": added_tokens_decoder '3e2': found that id"},
      {named(R"("":{"content":"x"})"), ": added_tokens_decoder '': found that id"},
      {named(R"("300":"x")"), ": added_tokens_decoder '300': found '\"x\"', expected an object"},
      {named(R"("300":{})"), ": added_tokens_decoder '300': found '{}', expected an object"},
      {named(R"("300":{"content":7})"), ": added_tokens_decoder '300': found"},
      {named(R"("300":{"content":""})"), ": added_tokens_decoder '300': found"},
      {named(R"("300":{"content":"x"},"303":{"content":"x"})"),
       ": found 'x' as the literal of 300 and of 303"},
      {named(R"("300":{"content":"<|reserved_token_302|>"})"),
       ": found '<|reserved_token_302|>' as the literal of 300 and of 302"},
  };
  for (const auto& [json, expected] : cases) {
    EXPECT_EQ(specials_error(json).find("dir/tokenizer_config.json" + expected), 0u)
        << specials_error(json);
  }
  for (const std::string json : {"", "{", "{\"added_tokens_decoder\":{}} x"}) {
    EXPECT_EQ(specials_error(json).find("dir/tokenizer_config.json"), 0u) << specials_error(json);
  }
}

TEST(SpecialTokens, TheLongestLiteralWins) {
  const SpecialTokens specials(10, {"<a>", "<a>b", "<", "\xFFz"});
  const auto match = [&](std::string_view text) {
    const auto found = specials.match_start(text);
    return found ? std::pair{found->id, found->length} : std::pair{0u, size_t{0}};
  };
  EXPECT_EQ(match("<a>bc"), (std::pair{11u, size_t{4}}));
  EXPECT_EQ(match("<a>c"), (std::pair{10u, size_t{3}}));
  EXPECT_EQ(match("<a"), (std::pair{12u, size_t{1}}));
  EXPECT_EQ(match("\xFFz"), (std::pair{13u, size_t{2}}));
  EXPECT_EQ(match("a<"), (std::pair{0u, size_t{0}}));
  EXPECT_EQ(match(""), (std::pair{0u, size_t{0}}));
}

}  // namespace
}  // namespace k3::text
