#include "io/io_thread.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"
#include "k3/error.h"

namespace k3::io {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kIdleTimeout{1000};
// Reads in a row that may be put off (EINTR, EAGAIN) before a piece fails.
constexpr uint32_t kFruitlessReadsMax = 100;
// Direct reads in a row that may bring less than a block before the file is read through the page
// cache: there a read goes on at any byte, and one byte of each is enough.
constexpr uint32_t kShortReadsMax = 3;

double seconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

/// First-in first-out, of fixed capacity.
class JobQueue {
 public:
  explicit JobQueue(size_t capacity) : slots_(capacity) {}
  bool empty() const { return count_ == 0; }
  void push(ReadJob* job) {
    K3_CHECK(count_ < slots_.size());  // more than Options::queue_jobs
    slots_[(first_ + count_++) % slots_.size()] = job;
  }
  ReadJob* pop() {
    ReadJob* const job = slots_[first_];
    first_ = (first_ + 1) % slots_.size();
    --count_;
    return job;
  }

 private:
  std::vector<ReadJob*> slots_;
  size_t first_ = 0;
  size_t count_ = 0;
};

/// The job that a lane is at, and how far its pieces have been begun.
struct Cursor {
  ReadJob* job = nullptr;
  uint64_t next = 0;  // file offset of the next piece
};

/// A part of a job that is read on until its share of the payload is there. Offsets are the file's.
struct Piece {
  ReadJob* job = nullptr;
  int fd = -1;
  uint64_t begin = 0;  // a multiple of kBlockSize, as is end
  uint64_t end = 0;
  uint64_t have = 0;       // bytes up to here have arrived
  uint64_t read_from = 0;  // where the present read begins
  bool direct = false;     // the present read
  uint32_t fruitless = 0;  // reads in a row that brought nothing new
};

uint64_t payload_end(const ReadJob& job) {
  return job.offset + job.length;
}
uint64_t widened_end(const ReadJob& job) {
  return block_ceil(payload_end(job));
}

/// Whether all of the payload in the piece has arrived.
bool is_whole(const Piece& piece) {
  return piece.have >= std::min(piece.end, payload_end(*piece.job));
}

/// Whether the file, which was longer when it was opened, now ends with what has arrived.
bool file_ends_at(const Piece& piece) {
  struct stat status {};
  return ::fstat(piece.fd, &status) == 0 && static_cast<uint64_t>(status.st_size) <= piece.have;
}

void set_error(ReadJob& job, int error, uint64_t offset) {
  if (job.error != 0) return;  // the first failure is the one to report
  job.error = error;
  job.error_offset = offset;
}

[[noreturn]] void throw_read_error(const ReadJob& job, const std::filesystem::path& path) {
  const std::string what = job.what == nullptr ? "" : job.what(job);
  throw read_error(path, job.offset, job.length, what, job.error, job.error_offset);
}

}  // namespace

struct IoThread::State {
  State(std::unique_ptr<BlockReader> the_reader, FileTable& the_files, Options the_options);

  // Constant after construction.
  const std::unique_ptr<BlockReader> reader;
  FileTable& files;  // the I/O thread's but for the paths
  const Options options;

  // Of the I/O thread alone.
  std::vector<Piece> pieces;  // one for each read that the reader takes; the index is the tag
  std::vector<size_t> free_pieces;
  std::vector<ReadRequest> batch;  // to be submitted next
  std::vector<ReadCompletion> completions;
  std::array<Cursor, 2> cursors;  // by lane
  size_t reads_in_flight = 0;
  Clock::time_point busy_counted_to;
  IoStats counters;
  bool warned_of_fallback = false;  // of any file

  std::mutex mutex;  // guards all below
  std::condition_variable job_done;
  std::array<JobQueue, 2> queues;  // by lane: requested and not begun
  bool asleep = false;             // the I/O thread waits and could begin more
  bool stopping = false;
  bool interrupted = false;
  double wait_seconds = 0;
  IoStats stats;                    // `counters` when a piece last ended
  const ReadJob* failed = nullptr;  // ended with an error that nobody has been told of

  Thread thread;  // last: it uses all above

  uint32_t pieces_between(uint64_t begin, uint64_t end) const {
    return static_cast<uint32_t>((end - begin + options.piece_bytes - 1) / options.piece_bytes);
  }
  bool idle() const { return free_pieces.size() == pieces.size(); }

  // Computing threads.
  void enqueue(ReadJob& job, Lane lane);
  void block(std::unique_lock<std::mutex>& lock, const ReadJob& job);
  void forget_failure(const ReadJob& job);
  void stop();

  // The I/O thread.
  void run();
  bool ended();
  void begin_reads();
  Cursor* next_cursor();
  bool begin_piece(Cursor& cursor);
  const DirectFile* open_file(ReadJob& job, uint64_t offset, bool* retry_later);
  void request_rest(Piece& piece);
  void submit_batch();
  void handle(const ReadCompletion& completion);
  int take(Piece& piece, uint64_t bytes);
  bool recover(Piece& piece, int error);
  void fall_back(const Piece& piece, const char* why);
  void finish(Piece& piece);
  void count_down(ReadJob& job, uint32_t count);
};

IoThread::State::State(std::unique_ptr<BlockReader> the_reader, FileTable& the_files,
                       Options the_options)
    : reader(std::move(the_reader)),
      files(the_files),
      options(the_options),
      pieces(reader->depth()),
      completions(reader->depth()),
      queues{JobQueue(options.queue_jobs), JobQueue(options.queue_jobs)} {
  K3_CHECK(options.piece_bytes > 0 && options.piece_bytes % kBlockSize == 0);
  batch.reserve(pieces.size());
  for (size_t index = 0; index < pieces.size(); ++index) free_pieces.push_back(index);
  thread = Thread("k3-io", [this] { run(); });
}

void IoThread::State::enqueue(ReadJob& job, Lane lane) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex);
    if (failed == &job) failed = nullptr;
    queues[static_cast<size_t>(lane)].push(&job);
    wake = std::exchange(asleep, false);
  }
  if (wake) reader->wake();
}

/// Until the job has ended, interrupt() is called, or the reads hang beside a failed one.
void IoThread::State::block(std::unique_lock<std::mutex>& lock, const ReadJob& job) {
  const auto ended = [&] { return done(job) || interrupted; };
  for (;;) {
    const uint64_t reads = stats.reads;
    if (job_done.wait_for(lock, options.hang_time, ended)) return;
    const bool hangs = stats.reads == reads;
    if (failed != nullptr && hangs) throw_read_error(*failed, files.path(failed->file));
  }
}

/// Its owner knows of it, and may give the job's memory back.
void IoThread::State::forget_failure(const ReadJob& job) {
  const std::lock_guard lock(mutex);
  if (failed == &job) failed = nullptr;
}

void IoThread::State::stop() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  reader->wake();
  thread.join();
}

void IoThread::State::run() {
  for (;;) {
    begin_reads();
    if (ended()) return;
    const size_t count = reader->wait(completions, kIdleTimeout);
    for (size_t i = 0; i < count; ++i) handle(completions[i]);
  }
}

bool IoThread::State::ended() {
  const std::lock_guard lock(mutex);
  return stopping && idle();
}

void IoThread::State::begin_reads() {
  while (!free_pieces.empty()) {
    Cursor* const cursor = next_cursor();
    if (cursor == nullptr || !begin_piece(*cursor)) break;
  }
  submit_batch();
}

/// The lane whose turn it is; null when there is nothing to begin.
Cursor* IoThread::State::next_cursor() {
  const std::lock_guard lock(mutex);
  if (stopping) return nullptr;
  for (const Lane lane : {Lane::kUrgent, Lane::kBackground}) {
    Cursor& cursor = cursors[static_cast<size_t>(lane)];
    JobQueue& queue = queues[static_cast<size_t>(lane)];
    if (cursor.job == nullptr && !queue.empty()) {
      cursor.job = queue.pop();
      cursor.next = block_floor(cursor.job->offset);
    }
    if (cursor.job != nullptr) return &cursor;
  }
  asleep = true;
  return nullptr;
}

/// Begins one piece, or gives up a failed job; false when that has to wait for a read to end.
bool IoThread::State::begin_piece(Cursor& cursor) {
  ReadJob& job = *cursor.job;
  const uint64_t job_end = widened_end(job);
  bool retry_later = false;
  const DirectFile* const file =
      job.error == 0 ? open_file(job, cursor.next, &retry_later) : nullptr;
  if (retry_later) return false;
  if (file == nullptr) {
    cursor.job = nullptr;
    count_down(job, pieces_between(cursor.next, job_end));
    return true;
  }
  Piece& piece = pieces[free_pieces.back()];
  free_pieces.pop_back();
  piece = Piece();
  piece.job = &job;
  piece.fd = file->fd();
  piece.begin = piece.have = cursor.next;
  piece.end = std::min(job_end, piece.begin + options.piece_bytes);
  cursor.next = piece.end;
  if (cursor.next == job_end) cursor.job = nullptr;
  request_rest(piece);
  return true;
}

/// The job's file, held for one piece. Null when the job failed here, or *retry_later is set: every
/// descriptor that we allow ourselves is in use.
const DirectFile* IoThread::State::open_file(ReadJob& job, uint64_t offset, bool* retry_later) {
  int error = 0;
  const DirectFile* const file = files.acquire(job.file, &error);
  if (file == nullptr) {
    *retry_later = error == EMFILE && !idle();
    if (!*retry_later) set_error(job, error, offset);
    return nullptr;
  }
  if (payload_end(job) <= file->size()) return file;
  set_error(job, ENODATA, file->size());
  files.release(job.file);
  return nullptr;
}

/// Puts the read of what the piece lacks into the batch.
void IoThread::State::request_rest(Piece& piece) {
  const ReadJob& job = *piece.job;
  piece.direct = !files.buffered(job.file);
  if (!piece.direct) counters.all_direct = false;
  piece.read_from = piece.direct ? block_floor(piece.have) : piece.have;
  ReadRequest request;
  request.fd = piece.fd;
  request.offset = piece.read_from;
  request.buffer = job.buffer + (piece.read_from - block_floor(job.offset));
  request.length = static_cast<uint32_t>(piece.end - piece.read_from);
  request.tag = static_cast<uint64_t>(&piece - pieces.data());
  batch.push_back(request);
}

void IoThread::State::submit_batch() {
  if (batch.empty()) return;
  if (reads_in_flight == 0) busy_counted_to = Clock::now();
  reads_in_flight += batch.size();
  counters.max_reads_in_flight = std::max<uint64_t>(counters.max_reads_in_flight, reads_in_flight);
  reader->submit(batch);
  batch.clear();
}

void IoThread::State::handle(const ReadCompletion& completion) {
  const Clock::time_point now = Clock::now();
  counters.busy_seconds += seconds_between(busy_counted_to, now);
  busy_counted_to = now;
  --reads_in_flight;
  ++counters.reads;
  Piece& piece = pieces[completion.tag];
  const int error = completion.result < 0 ? static_cast<int>(-completion.result)
                                          : take(piece, static_cast<uint64_t>(completion.result));
  if (is_whole(piece)) return finish(piece);
  if (error == 0 || recover(piece, error)) return request_rest(piece);
  set_error(*piece.job, error, piece.have);
  finish(piece);
}

/// Counts what a read has brought; ENODATA at the end of the file.
int IoThread::State::take(Piece& piece, uint64_t bytes) {
  counters.disk_bytes += bytes;
  const uint64_t end = piece.read_from + bytes;
  piece.fruitless = end > piece.have ? 0 : piece.fruitless + 1;
  piece.have = std::max(piece.have, end);
  if (bytes == 0) return ENODATA;
  if (!piece.direct || is_whole(piece) || piece.fruitless < kShortReadsMax) return 0;
  if (file_ends_at(piece)) return ENODATA;
  fall_back(piece, "direct reads bring less than a block");
  return 0;
}

/// Whether the read may be repeated.
bool IoThread::State::recover(Piece& piece, int error) {
  if (error == EINTR || error == EAGAIN) return ++piece.fruitless <= kFruitlessReadsMax;
  if (error != EINVAL || !piece.direct) return false;
  fall_back(piece, "direct reads are refused");
  return true;
}

/// Reads the piece's file through the page cache from now on.
void IoThread::State::fall_back(const Piece& piece, const char* why) {
  ++counters.direct_fallbacks;
  const FileId file = piece.job->file;
  if (files.buffered(file)) return;
  files.use_buffered(file);
  const std::string note =
      fmt::format("{}: {}, reading through the page cache", files.path(file).string(), why);
  // What one file of a file system does all of them do: one warning says it.
  if (std::exchange(warned_of_fallback, true)) {
    log::debug(note);
  } else {
    log::warn(note);
  }
}

void IoThread::State::finish(Piece& piece) {
  if (!piece.direct) {
    // The budget's owner did not ask for page cache, and in a cgroup it is charged for it.
    ::posix_fadvise(piece.fd, static_cast<off_t>(piece.begin),
                    static_cast<off_t>(piece.end - piece.begin), POSIX_FADV_DONTNEED);
  }
  files.release(piece.job->file);
  free_pieces.push_back(static_cast<size_t>(&piece - pieces.data()));
  count_down(*piece.job, 1);
}

/// The last touch of a job: at zero its owner may take it away.
void IoThread::State::count_down(ReadJob& job, uint32_t count) {
  const std::lock_guard lock(mutex);
  stats = counters;
  if (job.error != 0) failed = &job;
  if (job.pieces_left.fetch_sub(count, std::memory_order_release) == count) job_done.notify_all();
}

IoThread::IoThread(std::unique_ptr<BlockReader> reader, FileTable& files, Options options)
    : state_(std::make_unique<State>(std::move(reader), files, options)) {}

IoThread::~IoThread() {
  state_->stop();
}

void IoThread::request(ReadJob& job, Lane lane) {
  K3_CHECK(reinterpret_cast<uintptr_t>(job.buffer) % kBlockSize == 0);
  K3_CHECK(done(job) && job.length < (uint64_t{1} << 40) && job.offset < (uint64_t{1} << 62));
  job.error = 0;
  job.error_offset = 0;
  if (job.length == 0) return;
  const uint32_t count = state_->pieces_between(block_floor(job.offset), widened_end(job));
  job.pieces_left.store(count, std::memory_order_relaxed);
  state_->enqueue(job, lane);
}

bool IoThread::done(const ReadJob& job) {
  return job.pieces_left.load(std::memory_order_acquire) == 0;
}

void IoThread::wait(ReadJob& job) {
  if (!done(job)) {
    std::unique_lock lock(state_->mutex);
    const Clock::time_point start = Clock::now();
    state_->block(lock, job);
    state_->wait_seconds += seconds_between(start, Clock::now());
    if (!done(job)) throw Error(ErrorKind::kInterrupted, "interrupted");
  }
  if (job.error == 0) return;
  state_->forget_failure(job);
  throw_read_error(job, state_->files.path(job.file));
}

void IoThread::settle(ReadJob& job) {
  {
    std::unique_lock lock(state_->mutex);
    state_->job_done.wait(lock, [&] { return done(job); });
  }
  state_->forget_failure(job);
}

void IoThread::interrupt() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->interrupted = true;
  }
  state_->job_done.notify_all();
}

double IoThread::wait_seconds() const {
  const std::lock_guard lock(state_->mutex);
  return state_->wait_seconds;
}

IoStats IoThread::stats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->stats;
}

const std::filesystem::path& IoThread::path(const ReadJob& job) const {
  return state_->files.path(job.file);
}

std::string_view IoThread::reader_name() const {
  return state_->reader->name();
}

}  // namespace k3::io
