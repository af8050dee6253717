#include "weights/model_directory.h"

#include <fmt/format.h>

#include <fstream>
#include <system_error>

#include "k3/error.h"

namespace k3::weights {
namespace {

namespace fs = std::filesystem;

struct Signature {
  std::string_view bytes;
  size_t offset;
  std::string_view meaning;
};

constexpr Signature kSignatures[] = {
    {"GGUF", 0, "a GGUF file"},
    {"K3TRUNK\n", 0, "a trunk file of k3 (give it with --trunk)"},
    {"version https://git-lfs", 0, "a Git LFS pointer, not the file itself"},
    {"PK\x03\x04", 0, "a ZIP archive or PyTorch file"},
    {"\x80\x02", 0, "a Python pickle"},
    {"<!DOCTYPE", 0, "an HTML page"},
    {"<html", 0, "an HTML page"},
    {"\x1f\x8b", 0, "a gzip archive"},
    {"{\"", 8, "a single safetensors file"},
};

std::string first_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(32, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

[[noreturn]] void fail(const fs::path& path, std::string_view found) {
  throw Error(ErrorKind::kCheckpoint,
              fmt::format("{}: {}; expected the directory of a Kimi K3 checkpoint as released "
                          "(config.json, model.safetensors.index.json and its shards), whose "
                          "weights are used bit for bit: no other format is read",
                          path.string(), found));
}

}  // namespace

std::string describe_content(std::string_view first_bytes) {
  for (const Signature& s : kSignatures) {
    if (first_bytes.size() >= s.offset && first_bytes.substr(s.offset).starts_with(s.bytes)) {
      return std::string(s.meaning);
    }
  }
  return "an unknown kind of file";
}

void require_model_directory(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return;
  if (status.type() == fs::file_type::not_found) fail(path, "no such file or directory");
  if (error) fail(path, error.message());
  if (!fs::is_regular_file(status)) fail(path, "neither a file nor a directory");
  fail(path, "this is " + describe_content(first_bytes(path)));
}

}  // namespace k3::weights
