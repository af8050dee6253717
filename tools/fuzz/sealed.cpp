#include "tools/fuzz/sealed.h"

#include <cstring>
#include <span>

#include "base/hash.h"
#include "engine/snapshot.h"
#include "weights/trunk_manifest.h"

namespace k3::fuzz {
namespace {

uint64_t checksum_of(const std::string& bytes, size_t offset, size_t count) {
  return checksum(std::as_bytes(std::span(bytes)).subspan(offset, count));
}

template <typename T>
void store(std::string& bytes, size_t offset, const T& value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

template <typename T>
T load(const std::string& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace

std::string sealed_trunk(std::string_view bytes) {
  std::string out(bytes);
  if (out.size() < sizeof(weights::FileHeader)) return out;
  auto header = load<weights::FileHeader>(out);
  const uint64_t size = out.size();
  if (header.manifest_offset <= size && header.manifest_bytes <= size - header.manifest_offset) {
    header.manifest_checksum = checksum_of(out, header.manifest_offset, header.manifest_bytes);
  }
  header.header_checksum = weights::file_header_checksum(header);
  store(out, 0, header);
  return out;
}

std::string sealed_snapshot(std::string_view bytes) {
  using Header = engine::SnapshotHeader;
  std::string out(bytes);
  if (out.size() < sizeof(Header) + sizeof(uint64_t)) return out;
  auto header = load<Header>(out);
  const uint64_t behind = out.size() - sizeof header;
  if (header.id_count <= behind / sizeof(uint32_t)) {
    header.ids_checksum = checksum_of(out, sizeof header, header.id_count * sizeof(uint32_t));
  }
  store(out, 0, header);
  header.header_checksum = checksum_of(out, 0, offsetof(Header, header_checksum));
  store(out, 0, header);
  const size_t end = out.size() - sizeof(uint64_t);
  store(out, end, checksum_of(out, 0, end));
  return out;
}

}  // namespace k3::fuzz
