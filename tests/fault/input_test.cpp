// Prompts, ids and numbers that nobody should give.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "fault/command_run.h"
#include "support/messages.h"
#include "support/sanitizers.h"

namespace k3::test {
namespace {

K3Command prompt_from_input(const std::string& option, const std::string& input) {
  K3Command command;
  command.args = {"generate", fault_model().string(),
                  "--trunk",  fault_trunk(false).string(),
                  "--json",   "-q",
                  "-n",       "2",
                  option,     "-"};
  command.input = input;
  return command;
}

TEST(Input, APromptOfEveryByteRunsAndItsJsonIsUtf8) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  const K3Result result = run_k3(prompt_from_input("--prompt-file", bytes));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(Json::accept(result.out)) << result.out;  // which refuses ill-formed UTF-8
}

TEST(Input, JsonStaysUtf8ForIdsThatAreHalfACharacter) {
  for (const char* id : {"128", "200", "226", "255"}) {
    const K3Result result = run_k3({.args = {"detokenize", fault_model().string(), id, "--json"}});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(Json::accept(result.out)) << result.out;
  }
}

/// A model of random weights with the tokenizer of another: it says tokens that are no text, halves
/// of characters among them.
class Nonsense : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy(data_dir() / "random-b", model_);
    for (const char* name : {"tiktoken.model", "tokenizer_config.json"}) {
      std::filesystem::copy_file(fault_model() / name, model_ / name);
    }
    ASSERT_EQ(run_k3({.args = {"pack", model_.string(), "-q"}}).exit_code, 0);
  }
  K3Command say(const std::string& prompt, std::vector<std::string> more = {}) const {
    K3Command command{
        .args = {"generate", model_.string(), "-q", "--ignore-eos", "-n", "60", "--ids", prompt}};
    command.args.insert(command.args.end(), more.begin(), more.end());
    return command;
  }
  TempDir dir_;
  std::filesystem::path model_ = dir_.path() / "model";
};

bool is_utf8(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace) ==
         Json(text).dump(-1, ' ', false, Json::error_handler_t::ignore);
}

TEST_F(Nonsense, IsUtf8InEveryPieceThatIsStreamedAndTheSameTextInJson) {
  size_t replaced = 0;
  for (const char* prompt : {"1", "7,9", "200,3", "5,5,5", "90"}) {
    K3Process process(say(prompt));
    for (size_t seen = 0;;) {
      const std::string text = process.read_out(seen + 1);
      EXPECT_TRUE(is_utf8(text)) << text;
      if (text.size() == seen) break;
      seen = text.size();
    }
    const K3Result streamed = process.wait();
    const K3Result json = run_k3(say(prompt, {"--json"}));
    ASSERT_TRUE(Json::accept(json.out)) << json.out;  // which refuses ill-formed UTF-8
    EXPECT_EQ(Json::parse(json.out).at("text"), streamed.out);
    replaced += streamed.out.find("\xEF\xBF\xBD") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(replaced, 0u);  // else nothing was put to the test
}

TEST(Input, AMillionEqualCharactersAreTooLongAndNotTooSlow) {
  for (const char c : {'a', ' ', '\n', '\0', '\xff'}) {
    const K3Result result = run_k3(prompt_from_input("--prompt-file", std::string(1'000'000, c)));
    expect_one_line(result, 2);
    EXPECT_TRUE(mentions(result.err, "positions")) << result.err;
  }
}

TEST(Input, TwoHundredThousandIdsFromStandardInputAreTakenOrRefusedWithBothNumbers) {
  std::string ids = "1";
  for (int i = 1; i < 200'000; ++i) ids += ",1";
  const K3Result result = run_k3(prompt_from_input("--ids", ids));
  expect_one_line(result, 2);
  EXPECT_TRUE(mentions(result.err, "200000 tokens"));
}

TEST(Input, IdsThatAreNoneAreUsageErrors) {
  for (const char* ids :
       {"1280", "4294967296", "99999999999999999999999", "-1", "1,,2", "1,x", "1.5", "0x10", ""}) {
    SCOPED_TRACE(ids);
    K3Command command = generate_command(fault_model());
    command.args[3] = ids;
    expect_one_line(run_k3(command), 2);
  }
}

TEST(Input, CountsAreDecimalHoweverTheyAreWritten) {
  const auto ids_of = [](std::vector<std::string> more) {
    const K3Result result = run_k3(generate_command(fault_model(), std::move(more)));
    return result.exit_code == 0 ? Json::parse(result.out).at("ids").size() : 0;
  };
  K3Command command = generate_command(fault_model());
  command.args[5] = "010";  // of -n
  const K3Result result = run_k3(command);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out).at("ids").size(), 10u);
  EXPECT_EQ(ids_of({"-c", "0007", "-b", "08", "-t", "02"}), 3u);
  for (const char* option : {"-c", "-b", "-t", "--stop-id"}) {
    for (const char* number : {"0x10", "+5", " 5", "5 ", "1e1", "1'0", "0b11", "0o7"}) {
      SCOPED_TRACE(std::string(option) + " " + number);
      expect_one_line(run_k3(generate_command(fault_model(), {option, number})), 2);
    }
  }
}

/// Room for a run, and not for a text of this size beside it.
TEST(Input, OfMoreThanTheModelTakesIsRefusedBeforeItTakesMemory) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need more address space than this test allows";
  const TempDir dir;
  const std::string model = fault_model().string(), trunk = fault_trunk(false).string();
  const std::string big = (dir.path() / "big").string();
  std::ofstream(big) << "";
  std::filesystem::resize_file(big, 200'000'000);
  for (const std::string& file : {big, std::string("/dev/zero")}) {
    for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
             {"generate", model, "--trunk", trunk, "--budget", "30M", "-f", file},
             {"score", model, "--trunk", trunk, file}}) {
      const K3Result result = run_k3({.args = args, .limits = {{RLIMIT_AS, 150'000'000}}});
      expect_one_line(result, 2);
      EXPECT_TRUE(mentions(result.err, file + " has more than 1.05 MB")) << result.err;
      EXPECT_TRUE(mentions(result.err, "4096 positions")) << result.err;
    }
  }
  const K3Result ids = run_k3(prompt_from_input("--ids", std::string(2'000'000, ' ')));
  expect_one_line(ids, 2);
  EXPECT_TRUE(mentions(ids.err, "standard input has more than 1.05 MB")) << ids.err;
}

TEST_F(ModelCopy, ATextOfMoreTokensThanAnyPositionIsNotTokenizedToItsEnd) {
  std::ifstream in(fault_model() / "config.json");
  Json config = Json::parse(in);
  config["text_config"]["max_position_embeddings"] = 1'100'000;
  std::ofstream(model_ / "config.json") << config;
  const std::string text(3'000'000, '\0');  // a token each
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"generate", model_.string(), "--trunk", fault_trunk(false).string(), "-f", "-"},
           {"score", model_.string(), "--trunk", fault_trunk(false).string(), "-"}}) {
    const K3Result result = run_k3({.args = args, .input = text});
    expect_one_line(result, 2);
    EXPECT_TRUE(mentions(result.err, "more than 1100000 tokens, the model takes 1100000"));
  }
}

TEST(Input, ThatNeverEndsIsRefusedWithTheLimit) {
  const UniqueFd zero(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  const K3Result result =
      run_k3({.args = {"tokenize", fault_model().string(), "-"}, .in = zero.get()});
  expect_one_line(result, 2);
  EXPECT_TRUE(mentions(result.err, "standard input has more than 268 MB"));
}

TEST(Input, ThatCannotBeReadIsSaidWithWhatToDo) {
  const std::string model = fault_model().string(), trunk = fault_trunk(false).string();
  const K3Result absent =
      run_k3({.args = {"generate", model, "--trunk", trunk, "-f", "/nonexistent/prompt"}});
  expect_one_line(absent, 2);
  EXPECT_TRUE(mentions(absent.err, "No such file or directory; name a file that can be read"));
  const UniqueFd write_only(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  const K3Result none =
      run_k3({.args = {"generate", model, "--trunk", trunk, "-f", "-"}, .in = write_only.get()});
  expect_one_line(none, 2);
  EXPECT_TRUE(mentions(none.err, "standard input failed: it is not open for reading"));
}

TEST(Input, WhatIsNotAnIdIsShownInPartHoweverLongItIs) {
  K3Command command{.args = {"detokenize", fault_model().string(), "-"},
                    .input = std::string(3'000'000, 'x')};
  const K3Result result = run_k3(command);
  expect_one_line(result, 2);
  EXPECT_LT(result.err.size(), 300u);
  command.input = "4294967296";
  EXPECT_TRUE(mentions(run_k3(command).err, "from 0 to 4294967295"));
}

TEST(Input, AnArgumentOfAnyLengthIsOneLineThatEndsInWhatToDo) {
  const std::string model = fault_model().string(), trunk = fault_trunk(false).string();
  const std::string longest(120'000, 'x');
  for (const auto& [args, end] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{longest}, "see `k3 --help`"},
           {{"version", "--" + longest}, "see `k3 version --help`"},
           {{"generate", model, "-n", longest}, "see `k3 generate --help`"},
           {{"generate", model, "--budget", longest}, "see `k3 generate --help`"},
           {{"generate", model, "--trunk", trunk, "-f", longest}, "- for standard input"},
           {{"generate", model, "--trunk", trunk, "-p", "x", "--save", longest}, "with --save"},
           {{"pack", model, "-o", longest}, "with -o"}}) {
    SCOPED_TRACE(args[0].substr(0, 10) + " ... " + end);
    const K3Result result = run_k3({.args = args});
    expect_one_line(result, 2);
    EXPECT_LT(result.err.size(), 17'000u);
    EXPECT_TRUE(result.err.ends_with(end + "\n")) << result.err.substr(result.err.size() - 100);
  }
}

TEST(Input, WhatIsNoCommandIsAUsageErrorThatNamesIt) {
  for (const auto& [args, part] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--"}, "A command is required"},
           {{"fly"}, "fly"},
           {{"bench"}, "kernels, step and disk"},
           {{"bench", "fly"}, "fly"},
           {{"verify"}, "MODEL"}}) {
    const K3Result result = run_k3({.args = args});
    expect_one_line(result, 2);
    EXPECT_TRUE(mentions(result.err, part)) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST(Input, PlacesThatAreNoFilesAreRefusedBeforeTheRun) {
  const TempDir dir;
  const std::string pipe = (dir.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0666), 0);
  for (const char* option : {"--dump-logits", "--save", "--load", "--prompt-cache"}) {
    for (const std::string& place : {pipe, std::string("/dev/null"), std::string("/dev/zero")}) {
      SCOPED_TRACE(option + (" " + place));
      const K3Result result = run_k3(generate_command(fault_model(), {option, place}));
      expect_one_line(result, std::string(option) == "--load" ? 3 : 2);
      EXPECT_TRUE(mentions(result.err, place));
      EXPECT_EQ(result.out, "");
    }
  }
}

TEST(Input, OptionsThatWouldDoNothingAreUsageErrors) {
  expect_one_line(run_k3(generate_command(fault_model(), {"--special"})), 2);
  expect_one_line(run_k3({.args = {"doctor", "--trunk", fault_trunk(false).string()}}), 2);
}

TEST(Input, NumbersThatOverflowOrMakeNoSenseAreRefusedInOneLine) {
  struct Case {
    const char* option;
    const char* value;
  };
  for (const Case& c : std::initializer_list<Case>{{"-n", "-1"},
                                                   {"-n", "99999999999999999999"},
                                                   {"-n", "18446744073709551615"},
                                                   {"-n", "1e3"},
                                                   {"-c", "18446744073709551615"},
                                                   {"-c", "0"},
                                                   {"-c", "99999999999999999999"},
                                                   {"-b", "0"},
                                                   {"-b", "-1"},
                                                   {"-t", "0"},
                                                   {"-t", "-3"},
                                                   {"-t", "18446744073709551615"},
                                                   {"--budget", "0"},
                                                   {"--budget", "-5G"},
                                                   {"--budget", "1e400G"},
                                                   {"--budget", "99999999999999999999G"},
                                                   {"--budget", "20E"},
                                                   {"--budget", "nan"},
                                                   {"--budget", "inf"},
                                                   {"--budget", "8 apples"},
                                                   {"--stop-id", "1280"},
                                                   {"--stop-id", "4294967296"},
                                                   {"--stop-id", "-1"}}) {
    SCOPED_TRACE(std::string(c.option) + " " + c.value);
    const K3Result result = run_k3(generate_command(fault_model(), {c.option, c.value}));
    expect_one_line(result, result.exit_code == 5 ? 5 : 2);
    EXPECT_LT(result.err.size(), 300u) << result.err;
  }
}

/// The options of a command that take a number or a size, as its help lists them.
std::vector<std::string> numeric_options(std::vector<std::string> command) {
  command.emplace_back("--help");
  std::istringstream help(run_k3({.args = command}).out);
  const std::regex form(R"(^  (?:-\w,)?(--[\w-]+) (UINT|INT|FLOAT|SIZE)\b.*)");
  std::vector<std::string> options;
  std::smatch match;
  for (std::string line; std::getline(help, line);) {
    if (std::regex_match(line, match, form)) options.push_back(match[1]);
  }
  return options;
}

TEST(Input, NoNumericOptionOfAnyCommandTakesWhatIsNoNumberOfItsKind) {
  const std::string model = fault_model().string(), trunk = fault_trunk(false).string();
  struct Case {
    std::vector<std::string> command;
    std::vector<std::string> rest;
    size_t options;
  };
  for (const Case& c : std::vector<Case>{{{"generate"}, {model, "--trunk", trunk, "-p", "x"}, 6},
                                         {{"score"}, {model, "--trunk", trunk, "--ids", "1,2"}, 4},
                                         {{"plan"}, {model, "--trunk", trunk}, 6},
                                         {{"bench", "disk"}, {model}, 1},
                                         {{"bench", "step"}, {"--shape", model}, 5},
                                         {{"bench", "kernels"}, {}, 3},
                                         {{"pack"}, {model}, 0},
                                         {{"verify"}, {model}, 0},
                                         {{"doctor"}, {}, 0},
                                         {{"tokenize"}, {model, "x"}, 0},
                                         {{"detokenize"}, {model, "1"}, 0},
                                         {{"version"}, {}, 0}}) {
    const std::vector<std::string> options = numeric_options(c.command);
    EXPECT_EQ(options.size(), c.options) << testing::PrintToString(options);
    for (const std::string& option : options) {
      for (const char* value : {"", "x", "-1", "nan", "inf", "1e400", "99999999999999999999999",
                                "0x10", "1,5", "5 apples"}) {
        SCOPED_TRACE(c.command.back() + " " + option + " '" + value + "'");
        std::vector<std::string> args = c.command;
        args.insert(args.end(), c.rest.begin(), c.rest.end());
        args.insert(args.end(), {option, value});
        const K3Result result = run_k3({.args = args});
        expect_one_line(result, 2);
        EXPECT_TRUE(mentions(result.err, option));
        EXPECT_LT(result.err.size(), 300u) << result.err;
        EXPECT_EQ(result.out, "");
      }
    }
  }
}

}  // namespace
}  // namespace k3::test
