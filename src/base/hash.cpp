#include "base/hash.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include <new>

#include "base/check.h"

namespace k3 {

uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

struct Checksum::State {
  XXH3_state_t* handle = XXH3_createState();
  ~State() { XXH3_freeState(handle); }
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  if (state_->handle == nullptr) throw std::bad_alloc();
  K3_CHECK(XXH3_64bits_reset(state_->handle) == XXH_OK);
}

Checksum::~Checksum() = default;

void Checksum::update(std::span<const std::byte> bytes) {
  K3_CHECK(XXH3_64bits_update(state_->handle, bytes.data(), bytes.size()) == XXH_OK);
}

uint64_t Checksum::digest() const {
  return XXH3_64bits_digest(state_->handle);
}

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  if (state_->context == nullptr) throw std::bad_alloc();
  K3_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  K3_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::hex_digest() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  K3_CHECK(EVP_DigestFinal_ex(state_->context, digest, &size) == 1);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[digest[i] >> 4];
    hex += kDigits[digest[i] & 15];
  }
  return hex;
}

}  // namespace k3
