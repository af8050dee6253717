#include "weights/trunk_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <iterator>
#include <numeric>
#include <thread>

#include "base/hash.h"
#include "trunk_model.h"
#include "weights/trunk_file.h"

namespace {

namespace fs = std::filesystem;
using namespace k3;        // NOLINT
using namespace k3::test;  // NOLINT
using weights::PackOptions;
using weights::PackProgress;
using weights::TrunkFile;

fs::path partial_of(const fs::path& target) {
  return target.string() + ".partial";
}

/// Runs an action in a child process; returns the status that waitpid gives.
template <typename Action>
int in_child(Action&& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    action();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

/// Packs in a child that dies, as from kill -9, after `chunks` chunks.
void pack_and_die(const TrunkModel& model, const fs::path& target, uint64_t chunks) {
  in_child([&] {
    PackOptions options;
    options.progress = [chunks](const PackProgress& progress) {
      if (progress.chunks_done == chunks) ::kill(::getpid(), SIGKILL);
    };
    model.pack(target, options);
  });
}

/// A chunk's bytes as the checkpoint has them.
std::string content_of(const weights::ChunkRecord& chunk, const std::string& file) {
  const std::string stored = file.substr(chunk.offset, chunk.stored_bytes);
  const auto codec = static_cast<weights::Codec>(chunk.codec);
  if (codec == weights::Codec::kRaw) return stored;
  std::string raw(chunk.raw_bytes, '\0');
  weights::unpack_weights(codec, std::as_bytes(std::span(stored)),
                          std::as_writable_bytes(std::span(raw)));
  return raw;
}

/// Rows of a shard as the checkpoint has them, for comparison with a trunk file read by hand.
void expect_equal_to_checkpoint(const TrunkModel& model, const fs::path& trunk_path) {
  const TrunkFile trunk = TrunkFile::open(trunk_path);
  const std::string bytes = read_bytes(trunk_path);
  std::string shard;
  uint32_t shard_number = UINT32_MAX;
  for (const auto& chunk : trunk.chunks()) {
    const std::string content = content_of(chunk, bytes);
    for (const auto& segment : trunk.segments(chunk)) {
      const auto& location = model.index.tensor(segment.tensor);
      const auto& tensor = model.tensors[segment.tensor];
      if (shard_number != location.shard) {
        shard_number = location.shard;
        shard = read_bytes(model.directory / model.index.shards()[shard_number].name);
      }
      const uint64_t row_bytes = tensor.cols * weights::dtype_bytes(location.dtype);
      for (uint64_t i = 0; i < segment.row_count; ++i) {
        const uint64_t row = segment.row_begin + i;
        const uint64_t source = row / tensor.pattern.take * tensor.pattern.period +
                                tensor.pattern.begin + row % tensor.pattern.take;
        ASSERT_EQ(std::memcmp(content.data() + segment.offset + i * row_bytes,
                              shard.data() + location.offset + source * row_bytes, row_bytes),
                  0)
            << tensor.name << " row " << row;
      }
    }
  }
}

TEST(TrunkWriter, WritesEveryRowOfTheCheckpointInItsPlace) {
  for (const char* name : {"tiny-k3", "random-a", "random-b", "random-c", "oracle"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const TrunkModel model(data_dir() / name);
    model.pack(dir.path() / "trunk.k3");
    expect_equal_to_checkpoint(model, dir.path() / "trunk.k3");
    EXPECT_FALSE(fs::exists(partial_of(dir.path() / "trunk.k3")));
    const TrunkFile trunk = TrunkFile::open(dir.path() / "trunk.k3");
    EXPECT_EQ(trunk.file_bytes().value, fs::file_size(dir.path() / "trunk.k3"));
    trunk.check_shards(model.directory, true);
  }
}

TEST(TrunkWriter, TwoRunsWriteTheSameBytes) {
  const TempDir dir;
  const MadeModel made;
  const TrunkModel model(made.directory());
  model.pack(dir.path() / "a");
  model.pack(dir.path() / "b");
  EXPECT_EQ(read_bytes(dir.path() / "a"), read_bytes(dir.path() / "b"));
}

TEST(TrunkWriter, KilledAfterAnyChunkAndRunAgainGivesTheSameFile) {
  const TempDir dir;
  const MadeModel made;
  const TrunkModel model(made.directory());
  const fs::path target = dir.path() / "trunk.k3";
  model.pack(dir.path() / "whole");
  const std::string whole = read_bytes(dir.path() / "whole");
  const uint64_t chunks = TrunkFile::open(dir.path() / "whole").chunks().size();
  ASSERT_GT(chunks, 50u);
  for (uint64_t stop = 1; stop <= chunks; stop += stop < 8 || stop + 8 > chunks ? 1 : chunks / 16) {
    pack_and_die(model, target, stop);
    ASSERT_FALSE(fs::exists(target)) << "under its final name before it is complete";
    ASSERT_TRUE(fs::exists(partial_of(target)));
    const auto result = model.pack(target);
    ASSERT_GT(result.resumed.value, 0u) << stop;
    ASSERT_TRUE(read_bytes(target) == whole) << "stopped after chunk " << stop;
    fs::remove(target);
  }
}

TEST(TrunkWriter, KilledAtRandomMomentsAgainAndAgainEndsWithTheSameFile) {
  const TempDir dir;
  const MadeModel made;
  const TrunkModel model(made.directory());
  const fs::path target = dir.path() / "trunk.k3";
  model.pack(dir.path() / "whole");
  uint32_t seed = 12345;
  for (int round = 0; round < 60 && !fs::exists(target); ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      model.pack(target);
      ::_exit(0);
    }
    seed = seed * 1664525u + 1013904223u;
    std::this_thread::sleep_for(std::chrono::microseconds(seed % 15'000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (fs::exists(target)) TrunkFile::open(target);  // whole, whenever it is there
  }
  if (!fs::exists(target)) model.pack(target);
  EXPECT_TRUE(read_bytes(target) == read_bytes(dir.path() / "whole"));
}

TEST(TrunkWriter, AChunkThatWasDamagedInThePartialFileIsWrittenAgain) {
  const TempDir dir;
  const MadeModel made;
  const TrunkModel model(made.directory());
  const fs::path target = dir.path() / "trunk.k3";
  model.pack(dir.path() / "whole");
  const TrunkFile whole = TrunkFile::open(dir.path() / "whole");
  pack_and_die(model, target, 40);
  // As after a power cut: the journal is there, some of the data is not.
  write_bytes(partial_of(target), whole.chunks()[20].offset, std::string(100, '\0'));
  const auto result = model.pack(target);
  uint64_t before = 0;
  for (size_t i = 0; i < 20; ++i) before += whole.chunks()[i].raw_bytes;
  EXPECT_EQ(result.resumed.value, before);
  EXPECT_TRUE(read_bytes(target) == read_bytes(dir.path() / "whole"));
}

TEST(TrunkWriter, GarbageBehindTheJournalsLastChunkIsOverwrittenEvenByZeros) {
  const TempDir dir;
  const MadeModel made;
  const fs::path target = dir.path() / "trunk.k3";
  TrunkModel(made.directory()).pack(dir.path() / "first");
  const TrunkFile first = TrunkFile::open(dir.path() / "first");
  // A matrix of zeros: none of its blocks would be written into a fresh file.
  size_t number = 5;
  while (first.segments(first.chunks()[number])[0].row_begin == 0) ++number;
  const uint32_t tensor = first.segments(first.chunks()[number])[0].tensor;
  const TrunkModel before(made.directory());
  const auto& location = before.index.tensor(tensor);
  write_bytes(made.directory() / before.index.shards()[location.shard].name, location.offset,
              std::string(location.bytes, '\0'));

  const TrunkModel model(made.directory());
  model.pack(dir.path() / "whole");
  pack_and_die(model, target, number);
  const auto& torn = first.chunks()[number];
  write_bytes(partial_of(target), torn.offset, std::string(torn.stored_bytes, 'x'));
  EXPECT_GT(model.pack(target).resumed.value, 0u);
  EXPECT_TRUE(read_bytes(target) == read_bytes(dir.path() / "whole"));
}

TEST(TrunkWriter, ThePartialFileOfAnotherCheckpointIsNotContinued) {
  const TempDir dir;
  const MadeModel one(1);
  const MadeModel two(2);
  const fs::path target = dir.path() / "trunk.k3";
  pack_and_die(TrunkModel(one.directory()), target, 40);
  const TrunkModel model(two.directory());
  EXPECT_EQ(model.pack(target).resumed.value, 0u);
  expect_equal_to_checkpoint(model, target);
  TrunkFile::open(target).check_shards(two.directory(), true);
}

TEST(TrunkWriter, ThePartialFileOfOtherOptionsIsNotContinued) {
  const TempDir dir;
  const MadeModel made;
  const TrunkModel model(made.directory());
  const fs::path target = dir.path() / "trunk.k3";
  pack_and_die(model, target, 40);
  PackOptions options;
  options.expert_checksums = true;
  EXPECT_EQ(model.pack(target, options).resumed.value, 0u);
}

TEST(TrunkWriter, ExpertChecksumsCoverTheSixPartsInOrderAndAreContinued) {
  for (const char* name : {"random-a", "random-b"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const TrunkModel model(data_dir() / name);
    const fs::path target = dir.path() / "trunk.k3";
    const uint64_t embedding = model.index.tensor(model.tensors.size()).bytes;
    const auto hashed_before = [&](uint64_t expert) {
      const auto& parts = model.request.expert_shape.part_bytes;
      return embedding + expert * std::accumulate(std::begin(parts), std::end(parts), uint64_t{0});
    };
    in_child([&] {
      PackOptions options;
      options.expert_checksums = true;
      options.progress = [&](const PackProgress& progress) {
        if (progress.hashed_done.value == hashed_before(5)) ::kill(::getpid(), SIGKILL);
      };
      model.pack(target, options);
    });
    PackOptions options;
    options.expert_checksums = true;
    uint64_t first_seen = 0;
    Bytes last_seen, total;
    options.progress = [&](const PackProgress& progress) {
      if (progress.hashed_done.value > embedding && first_seen == 0) {
        first_seen = progress.hashed_done.value;
      }
      last_seen = progress.hashed_done;
      total = progress.hashed_total;
    };
    model.pack(target, options);
    EXPECT_EQ(first_seen, hashed_before(6));
    EXPECT_EQ(last_seen, total);
    EXPECT_EQ(total.value,
              hashed_before(model.input().expert_layer_count * model.input().experts_per_layer));
    const TrunkFile trunk = TrunkFile::open(target);
    for (size_t layer = 0; layer < model.request.expert_layers.size(); ++layer) {
      for (uint32_t expert = 0; expert < model.request.experts_per_layer; ++expert) {
        const auto& location = model.index.expert(layer, expert);
        const std::string shard =
            read_bytes(model.directory / model.index.shards()[location.shard].name);
        std::string all;
        for (size_t part = 0; part < weights::kExpertParts; ++part) {
          all += shard.substr(location.offset[part], model.request.expert_shape.part_bytes[part]);
        }
        ASSERT_NE(trunk.expert_checksum(layer, expert), nullptr);
        EXPECT_EQ(*trunk.expert_checksum(layer, expert), checksum(std::as_bytes(std::span(all))));
        EXPECT_TRUE(std::equal(std::begin(location.offset), std::end(location.offset),
                               std::begin(trunk.expert(layer, expert).offset)));
      }
    }
  }
}

TEST(TrunkWriter, AProgressCallbackThatThrowsStopsTheRunAndLeavesThePartialFile) {
  const TempDir dir;
  const MadeModel made;
  const TrunkModel model(made.directory());
  const fs::path target = dir.path() / "trunk.k3";
  PackOptions options;
  options.progress = [](const PackProgress& progress) {
    if (progress.chunks_done == 7) throw Error(ErrorKind::kInterrupted, "stop");
  };
  EXPECT_EQ(error_of([&] { model.pack(target, options); }).kind(), ErrorKind::kInterrupted);
  EXPECT_FALSE(fs::exists(target));
  EXPECT_TRUE(fs::exists(partial_of(target)));
}

TEST(TrunkWriter, RefusesAWeightThatIsNotFiniteByTensorRowAndColumn) {
  const MadeModel made;
  const std::string name = "language_model.model.layers.1.self_attn.q_proj.weight";
  TrunkModel before(made.directory());
  size_t tensor = 0;
  while (before.tensors[tensor].name != name) ++tensor;
  const auto& location = before.index.tensor(tensor);
  ASSERT_EQ(location.dtype, weights::DType::kBf16);
  const uint64_t element = 2 * before.tensors[tensor].cols + 5;
  const fs::path shard = made.directory() / before.index.shards()[location.shard].name;
  const std::string good = read_bytes(shard).substr(location.offset + 2 * element, 2);
  const TempDir dir;
  struct Case {
    std::string bytes;
    std::string text;
  };
  for (const Case& bad : {Case{std::string("\x80\x7f", 2), "an infinity"},
                          Case{std::string("\x80\xff", 2), "an infinity"},
                          Case{std::string("\xc0\x7f", 2), "not a number"},
                          Case{std::string("\x81\xff", 2), "not a number"}}) {
    write_bytes(shard, location.offset + 2 * element, bad.bytes);
    const TrunkModel model(made.directory());
    const Error error = error_of([&] { model.pack(dir.path() / "trunk.k3"); });
    EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint);
    for (const std::string& text : {name, std::string("row 2, column 5"), bad.text}) {
      EXPECT_TRUE(mentions(error, text)) << error.what();
    }
    EXPECT_FALSE(fs::exists(dir.path() / "trunk.k3"));
  }
  // The largest finite bf16 is welcome.
  write_bytes(shard, location.offset + 2 * element, std::string("\x7f\x7f", 2));
  EXPECT_EQ(error_of([&] { TrunkModel(made.directory()).pack(dir.path() / "t"); }).what(),
            std::string("nothing"));
  write_bytes(shard, location.offset + 2 * element, good);
}

TEST(TrunkWriter, NamesTheCheckpointsRowOfAnFp32TensorAndOfAHalfOfKvB) {
  const MadeModel made;
  TrunkModel before(made.directory());
  const TempDir dir;
  auto poison = [&](size_t tensor, uint64_t source_row, uint64_t column) {
    const auto& location = before.index.tensor(tensor);
    const uint64_t bytes = weights::dtype_bytes(location.dtype);
    const fs::path shard = made.directory() / before.index.shards()[location.shard].name;
    const uint64_t at =
        location.offset + (source_row * before.tensors[tensor].cols + column) * bytes;
    const std::string good = read_bytes(shard).substr(at, bytes);
    write_bytes(shard, at, std::string("\x00\x00\x80\x7f", 4).substr(4 - bytes));
    const Error error =
        error_of([&] { TrunkModel(made.directory()).pack(dir.path() / "trunk.k3"); });
    write_bytes(shard, at, good);
    return error;
  };
  bool fp32_seen = false;
  bool half_seen = false;
  for (size_t i = 0; i < before.tensors.size(); ++i) {
    const auto& tensor = before.tensors[i];
    if (before.index.tensor(i).dtype == weights::DType::kF32 && tensor.rows > 3 && !fp32_seen) {
      fp32_seen = true;
      EXPECT_TRUE(mentions(poison(i, 3, 1), tensor.name + ", row 3, column 1"));
    }
    if (tensor.pattern.begin > 0 && !half_seen) {
      half_seen = true;
      const uint64_t row = tensor.pattern.period + tensor.pattern.begin;
      const Error error = poison(i, row, 2);
      EXPECT_TRUE(mentions(error, tensor.name + ", row " + std::to_string(row) + ", column 2"))
          << error.what();
    }
  }
  EXPECT_TRUE(fp32_seen);
  EXPECT_TRUE(half_seen);
}

TEST(TrunkWriter, HolesOfTheCheckpointStayHolesAndTheChecksumsAreThoseOfZeros) {
  const TempDir dir;
  const MadeModel made;
  // A head of many chunks, a hole but for one row: the vocabulary is made larger than the tiny one.
  Json config = tiny_config();
  config["text_config"]["vocab_size"] = 100'000;
  make_checkpoint(dir.path() / "model", {.config = config});
  const TrunkModel before(dir.path() / "model");
  const auto& head = before.index.tensor(before.tensors.size() - 1);
  const fs::path shard = before.directory / before.index.shards()[head.shard].name;
  const uint64_t row = 50'000 * before.tensors.back().cols * weights::dtype_bytes(head.dtype);
  const std::string kept = read_bytes(shard).substr(head.offset + row, 4096);
  const int fd = ::open(shard.c_str(), O_RDWR);
  ASSERT_EQ(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        static_cast<off_t>(head.offset), static_cast<off_t>(head.bytes)),
            0);
  ::close(fd);
  write_bytes(shard, head.offset + row, kept);

  const TrunkModel model(dir.path() / "model");
  const fs::path target = dir.path() / "trunk.k3";
  weights::write_trunk(model.input(1 << 20), target, {});
  struct stat status {};
  ASSERT_EQ(::stat(target.c_str(), &status), 0);
  EXPECT_GT(static_cast<uint64_t>(status.st_size), head.bytes);
  const std::string bytes = read_bytes(target);
  const TrunkFile trunk = TrunkFile::open(target);
  uint64_t holes = 0;  // the head's chunks but for the one with the row that was kept
  for (const auto& chunk : trunk.chunks()) {
    const bool head_chunk = trunk.segments(chunk).front().tensor + 1 == model.tensors.size();
    if (head_chunk && chunk.codec == 0) holes += chunk.stored_bytes;
  }
  EXPECT_GT(holes, head.bytes - (2u << 20));
  // One of them may be written in full: where the file begins, zeros go over what a run left.
  EXPECT_LT(static_cast<uint64_t>(status.st_blocks) * 512,
            static_cast<uint64_t>(status.st_size) - holes + (1u << 20) + (64u << 10));
  for (const auto& chunk : trunk.chunks()) {
    ASSERT_EQ(checksum(std::as_bytes(std::span(bytes).subspan(chunk.offset, chunk.stored_bytes))),
              chunk.checksum);
  }
  expect_equal_to_checkpoint(model, target);
}

TEST(TrunkWriter, AFullDiskIsOneErrorAndTheNextRunContinues) {
  const TempDir dir;
  const MadeModel made;
  const TrunkModel model(made.directory());
  const fs::path target = dir.path() / "trunk.k3";
  model.pack(dir.path() / "whole");
  const int status = in_child([&] {
    // The file may not grow beyond this: as on a full disk, write fails in the middle.
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100'000, 100'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Error error = error_of([&] { model.pack(target); });
    ::_exit(error.kind() == ErrorKind::kInternal && mentions(error, "trunk.k3.partial") ? 42 : 1);
  });
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_FALSE(fs::exists(target));
  model.pack(target);
  EXPECT_TRUE(read_bytes(target) == read_bytes(dir.path() / "whole"));
}

TEST(TrunkWriter, TwoPackersAtOnceAreKeptApart) {
  const TempDir dir;
  const MadeModel made;
  const TrunkModel model(made.directory());
  const fs::path target = dir.path() / "trunk.k3";
  Error second(ErrorKind::kInternal, "nothing");
  PackOptions options;
  options.progress = [&](const PackProgress& progress) {
    if (progress.chunks_done == 5) second = error_of([&] { model.pack(target); });
  };
  model.pack(target, options);
  EXPECT_EQ(second.kind(), ErrorKind::kUsage) << second.what();
  expect_equal_to_checkpoint(model, target);
}

TEST(TrunkWriter, ShardsMayBeSymbolicLinks) {
  const TempDir dir;
  const MadeModel made;
  fs::create_directory(dir.path() / "links");
  for (const auto& entry : fs::directory_iterator(made.directory())) {
    fs::create_symlink(entry.path(), dir.path() / "links" / entry.path().filename());
  }
  TrunkModel(made.directory()).pack(dir.path() / "a");
  TrunkModel(dir.path() / "links").pack(dir.path() / "b");
  EXPECT_TRUE(read_bytes(dir.path() / "a") == read_bytes(dir.path() / "b"));
}

TEST(TrunkWriter, ThePartialFileOfAnotherCodecIsNotContinued) {
  const TempDir dir;
  const MadeModel made;
  const TrunkModel model(made.directory());
  const fs::path target = dir.path() / "trunk.k3";
  PackOptions raw;
  raw.codec = weights::CodecChoice::kRaw;
  model.pack(dir.path() / "raw", raw);
  pack_and_die(model, target, 40);
  EXPECT_EQ(model.pack(target, raw).resumed.value, 0u);
  EXPECT_TRUE(read_bytes(target) == read_bytes(dir.path() / "raw"));
}

TEST(TrunkWriter, MatricesArePackedAndSmallTensorsAreNot) {
  const TempDir dir;
  const TrunkModel model(data_dir() / "tiny-k3");
  weights::write_trunk(model.input(weights::kChunkBytes), dir.path() / "t", {});
  const TrunkFile trunk = TrunkFile::open(dir.path() / "t");
  EXPECT_LE(static_cast<double>(trunk.stored_bytes().value),
            0.71 * static_cast<double>(trunk.raw_bytes().value));
  for (const auto& chunk : trunk.chunks()) {
    const auto& tensor = model.tensors[trunk.segments(chunk).front().tensor];
    EXPECT_EQ(chunk.codec != 0, tensor.group == 0) << tensor.name;
  }
}

TEST(TrunkVerify, FindsAnyChangedByteOfAPackedChunk) {
  const TempDir dir;
  const MadeModel made;
  const TrunkModel model(made.directory());
  const fs::path target = dir.path() / "trunk.k3";
  model.pack(target);
  const TrunkFile trunk = TrunkFile::open(target);
  const auto& chunk = trunk.chunks().back();
  ASSERT_NE(chunk.codec, 0);
  const std::string name(trunk.name(trunk.tensors().back()));
  for (uint64_t at = 0; at < chunk.stored_bytes; at += 1 + chunk.stored_bytes / 100) {
    flip_byte(target, chunk.offset + at);
    const Error error = error_of([&] {
      weights::verify_trunk_content(target, model.directory, model.index, model.tensors, {});
    });
    EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint) << at;
    EXPECT_TRUE(mentions(error, name) || mentions(error, "its checksum is not")) << error.what();
    flip_byte(target, chunk.offset + at);
  }
}

TEST(TrunkVerify, AcceptsWhatWasPackedAndNamesTensorAndRowOfAChangedByte) {
  const TempDir dir;
  const MadeModel made;
  const TrunkModel model(made.directory());
  const fs::path target = dir.path() / "trunk.k3";
  PackOptions raw;
  raw.codec = weights::CodecChoice::kRaw;
  model.pack(target, raw);
  Bytes last;
  weights::verify_trunk_content(target, model.directory, model.index, model.tensors,
                                [&](Bytes done, Bytes) { last = done; });
  const TrunkFile trunk = TrunkFile::open(target);
  EXPECT_EQ(last, trunk.raw_bytes());
  for (const size_t number : {size_t{0}, trunk.chunks().size() / 2, trunk.chunks().size() - 1}) {
    const auto& chunk = trunk.chunks()[number];
    const auto& segment = trunk.segments(chunk).back();
    const auto& tensor = trunk.tensors()[segment.tensor];
    const uint64_t row = segment.row_count - 1;
    const uint64_t row_bytes =
        tensor.cols * weights::dtype_bytes(static_cast<weights::DType>(tensor.dtype));
    const uint64_t at = chunk.offset + segment.offset + row * row_bytes + 1;
    flip_byte(target, at);
    const Error error = error_of([&] {
      weights::verify_trunk_content(target, model.directory, model.index, model.tensors, {});
    });
    EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint);
    EXPECT_TRUE(mentions(error, std::string(trunk.name(tensor)) + ", row " +
                                    std::to_string(segment.row_begin + row)))
        << error.what();
    flip_byte(target, at);
  }
}

TEST(TrunkVerify, FindsACheckpointThatChangedSinceItWasPacked) {
  const TempDir dir;
  const MadeModel made;
  const TrunkModel model(made.directory());
  const fs::path target = dir.path() / "trunk.k3";
  model.pack(target);
  const auto& location = model.index.tensor(model.tensors.size() - 1);
  flip_byte(made.directory() / model.index.shards()[location.shard].name,
            location.offset + location.bytes - 2);
  const Error error = error_of([&] {
    weights::verify_trunk_content(target, model.directory, model.index, model.tensors, {});
  });
  EXPECT_TRUE(mentions(error, "language_model.lm_head.weight, row ")) << error.what();
}

}  // namespace
