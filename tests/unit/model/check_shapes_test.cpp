#include <gtest/gtest.h>

#include <fstream>

#include "model/trunk_order.h"
#include "support/checkpoint_maker.h"
#include "support/messages.h"
#include "support/test_data.h"
#include "weights/dtype.h"

namespace k3::model {
namespace {

using test::CheckpointSpec;
using test::mentions;
using test::TensorForm;

void check(const std::filesystem::path& directory) {
  const Config config = load_config(directory);
  check_shapes(config, weights::CheckpointIndex::open(directory, checkpoint_request(config)));
}

/// Opens a checkpoint in which one tensor is stored in another form.
void check_with(const std::string& name, const TensorForm& form) {
  test::TempDir dir;
  test::make_checkpoint(dir.path(),
                        {.config = test::three_layer_config(), .reshape = {{name, form}}});
  check(dir.path());
}

TEST(CheckShapes, AcceptsTheReleasedForms) {
  test::TempDir dir;
  test::make_checkpoint(dir.path());
  EXPECT_NO_THROW(check(dir.path()));
}

TEST(CheckShapes, AcceptsAllTestModels) {
  for (const char* model : {"tiny-k3", "random-a", "random-b", "random-c", "oracle"}) {
    EXPECT_NO_THROW(check(test::data_dir() / model)) << model;
  }
}

TEST(CheckShapes, AcceptsF32AndBf16ForEveryTensor) {
  for (const test::MadeTensor& t : test::list_tensors({.config = test::three_layer_config()})) {
    if (t.form.dtype == "U8") continue;
    const TensorForm other = {t.form.dtype == "F32" ? "BF16" : "F32", t.form.shape};
    EXPECT_NO_THROW(check_with(t.name, other)) << t.name;
  }
}

TEST(CheckShapes, RefusesEveryTensorOfAnotherShapeNamingFoundAndExpected) {
  for (const test::MadeTensor& t : test::list_tensors({.config = test::three_layer_config()})) {
    if (t.form.dtype == "U8") continue;
    TensorForm wrong = t.form;
    // A_log may be longer, so it is made shorter than the heads.
    wrong.shape.back() = t.name.ends_with("A_log") ? 2 : wrong.shape.back() + 1;
    const std::string message =
        test::error_of(ErrorKind::kCheckpoint, [&] { check_with(t.name, wrong); });
    EXPECT_TRUE(mentions(message, t.name));
    EXPECT_TRUE(mentions(message, std::to_string(wrong.shape.back())));
    EXPECT_TRUE(mentions(message, "expected"));
  }
}

TEST(CheckShapes, RefusesOtherDtypes) {
  const std::string name = "language_model.model.layers.0.self_attn.q_proj.weight";
  for (const char* dtype : {"F16", "U8", "F64"}) {
    EXPECT_TRUE(mentions(test::error_of(ErrorKind::kCheckpoint,
                                        [&] {
                                          check_with(name, {dtype, {72, 72}});
                                        }),
                         std::string("is ") + dtype + " [72, 72], expected BF16 or F32"));
  }
}

TEST(CheckShapes, RefusesTheSameElementsInAnotherShape) {
  const std::string layer = "language_model.model.layers.0.";
  const std::vector<std::pair<std::string, TensorForm>> forms = {
      {layer + "self_attn.q_conv1d.weight", {"F32", {72, 4}}},
      {layer + "self_attn.q_conv1d.weight", {"F32", {72, 4, 1}}},
      {layer + "self_attention_res_proj.weight", {"BF16", {72}}},
      {layer + "input_layernorm.weight", {"BF16", {1, 72}}},
      {layer + "self_attn.A_log", {"F32", {24, 1}}},
      {layer + "self_attn.f_a_proj.weight", {"BF16", {72, 24}}},
      {"language_model.lm_head.weight", {"BF16", {72, 300}}},
      {"language_model.model.embed_tokens.weight", {"BF16", {72, 300}}}};
  for (const auto& item : forms) {
    const std::string message =
        test::error_of(ErrorKind::kCheckpoint, [&] { check_with(item.first, item.second); });
    EXPECT_TRUE(mentions(message, item.first));
  }
}

TEST(CheckShapes, TakesAnALogOfExactlyTheHeads) {
  EXPECT_NO_THROW(check_with("language_model.model.layers.0.self_attn.A_log", {"F32", {3}}));
}

TEST(CheckShapes, RefusesAConfigOfAnotherModel) {
  test::TempDir dir;
  test::make_checkpoint(dir.path());
  Json config = test::tiny_config();
  config["text_config"]["intermediate_size"] = 55;
  std::ofstream(dir.path() / "config.json") << config.dump();
  EXPECT_TRUE(mentions(test::error_of(ErrorKind::kCheckpoint, [&] { check(dir.path()); }),
                       "mlp.gate_proj.weight is BF16 [54, 72], expected BF16 or F32 [55, 72]"));
}

/// The released layout, by the published list of tensors (third-party data).
TEST(CheckShapes, KnowsEveryTensorOfTheReleasedLayout) {
  const auto spec = test::shared_dir() / "spec";
  std::ifstream list(spec / "tensor_layout.tsv");
  if (!list) GTEST_SKIP() << "no released layout at " << spec;
  std::map<std::string, uint64_t> elements_of;  // "class suffix" -> elements
  for (std::string line; std::getline(list, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string kind, suffix, dtype, shape;
    uint64_t offset = 0, bytes = 0;
    fields >> kind >> suffix >> dtype >> shape >> offset >> bytes;
    elements_of[kind + " " + suffix] = bytes / (dtype == "F32" ? 4 : 2);
  }
  const Config config = load_config(spec);
  std::map<std::string, uint64_t> bound;
  for (const weights::TrunkTensor& t : trunk_order(config)) {
    if (t.layer == weights::kNoLayer || (t.layer != 0 && t.layer != 1 && t.layer != 3)) continue;
    const std::string kind = t.layer == 0 ? "dense" : t.layer == 1 ? "kda" : "mla";
    const std::string suffix = t.name.substr(t.name.find(".layers.") + 10);
    bound[kind + " " + suffix] = t.at_least ? 128 : t.source_rows * t.cols;
  }
  std::erase_if(elements_of, [](const auto& item) {
    return item.first.starts_with("head") || item.first.starts_with("projector") ||
           item.first.starts_with("vision");
  });
  EXPECT_EQ(bound, elements_of);
}

}  // namespace
}  // namespace k3::model
