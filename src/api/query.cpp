// Questions: versions, errors, and what a communicator is and has done.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "include/hoccl.h"
#include "src/api/guard.hpp"
#include "src/api/handle.hpp"

using namespace hoccl;

namespace hoccl {
namespace {

// The last failure of the process: a watchdog asks for it from another thread than the one that failed.
struct LastError {
  std::mutex mutex;
  std::string text;
};
LastError& last_error() {
  static LastError* const last = new LastError;  // outlives static destructors
  return *last;
}

void copy_text(char* to, std::size_t room, std::string_view text) {
  const std::size_t n = std::min(text.size(), room - 1);
  std::memcpy(to, text.data(), n);
  to[n] = '\0';
}

}  // namespace

void set_last_error(const std::string& text) noexcept {
  LastError& last = last_error();
  const std::lock_guard lock(last.mutex);
  last.text = text;
}

}  // namespace hoccl

HOCCL_NCCL(ncclResult_t, ncclGetVersion, (int* version)) {
  return guarded([&] {
    require_pointer(version, "ncclGetVersion", "version");
    *version = NCCL_VERSION_CODE;
  });
}

HOCCL_NCCL(const char*, ncclGetErrorString, (ncclResult_t result)) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a CUDA call failed (set NCCL_DEBUG=WARN for details)";
    case ncclSystemError:
      return "a system call or a resource failed (see ncclGetLastError)";
    case ncclInternalError:
      return "an internal error (see ncclGetLastError; please report it)";
    case ncclInvalidArgument:
      return "an argument is invalid (see ncclGetLastError)";
    case ncclInvalidUsage:
      return "the call is not allowed here (see ncclGetLastError)";
    case ncclRemoteError:
      return "another rank failed, or the network to it (see ncclGetLastError)";
    case ncclInProgress:
      return "the operation is still in progress";
    default:
      return "unknown result code";
  }
}

HOCCL_NCCL(const char*, ncclGetLastError, (ncclComm_t)) {
  static thread_local std::string mine;
  LastError& last = last_error();
  const std::lock_guard lock(last.mutex);
  mine = last.text;
  return mine.c_str();
}

HOCCL_NCCL(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* asyncError)) {
  return guarded([&] {
    require_pointer(asyncError, "ncclCommGetAsyncError", "asyncError");
    const Use use(comm);
    const std::optional<Error> error = use->async_error();
    if (error) set_last_error(error->what());
    *asyncError = error ? static_cast<ncclResult_t>(error->code()) : ncclSuccess;
  });
}

HOCCL_NCCL(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int* count)) {
  return guarded([&] {
    require_pointer(count, "ncclCommCount", "count");
    *count = Use(comm)->size();
  });
}

HOCCL_NCCL(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int* device)) {
  return guarded([&] {
    require_pointer(device, "ncclCommCuDevice", "device");
    *device = Use(comm)->device_number();
  });
}

HOCCL_NCCL(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int* rank)) {
  return guarded([&] {
    require_pointer(rank, "ncclCommUserRank", "rank");
    *rank = index(Use(comm)->rank());
  });
}

extern "C" const char* hocclVersion(void) { return HOCCL_VERSION; }

extern "C" ncclResult_t hocclCommPlace(ncclComm_t comm, int* node, int* nodes, int* local_rank, int* local_ranks) {
  return guarded([&] {
    const Use use(comm);
    const Groups& groups = use->groups();
    const int mine = groups.node_of(use->rank());
    if (node != nullptr) *node = mine;
    if (nodes != nullptr) *nodes = groups.nodes();
    if (local_rank != nullptr) *local_rank = groups.local_of(use->rank());
    if (local_ranks != nullptr) *local_ranks = static_cast<int>(groups.members(mine).size());
  });
}

extern "C" ncclResult_t hocclCommTraffic(ncclComm_t comm, hocclTraffic_t* rows, int* count) {
  return guarded([&] {
    require_pointer(count, "hocclCommTraffic", "count");
    const Use use(comm);
    const auto all = use->traffic();
    const int room = rows != nullptr ? std::max(0, *count) : 0;
    for (int i = 0; i < std::min(room, static_cast<int>(all.size())); ++i) {
      const auto& t = all[static_cast<std::size_t>(i)];
      const bool apart = use->groups().node_of(t.peer) != use->groups().node_of(use->rank());
      hocclTraffic_t& r = rows[i];
      r = {index(t.peer), t.outgoing, apart, {}, {}, {}, t.traffic.bytes, t.traffic.messages};
      copy_text(r.transport, sizeof r.transport, t.transport);
      copy_text(r.channel, sizeof r.channel, name_of(t.label));
      copy_text(r.route, sizeof r.route, t.route);
    }
    *count = static_cast<int>(all.size());
  });
}

extern "C" ncclResult_t hocclCommChoice(ncclComm_t comm, const char* collective, size_t count, ncclDataType_t type,
                                        char* name, size_t name_size, int* parts, int* streams) {
  return guarded([&] {
    require_pointer(collective, "hocclCommChoice", "collective");
    const auto kind = kind_named(collective);
    require(kind.has_value(), Code::invalid_argument, "hocclCommChoice: {} is no collective", collective);
    require(type >= 0 && type < ncclNumTypes, Code::invalid_argument, "hocclCommChoice: {} is no data type",
            static_cast<int>(type));
    const Use use(comm);
    const Groups& groups = use->groups();
    check_count("hocclCommChoice", count, static_cast<Type>(type), use->size());
    const Choice choice = use->choice(
        {*kind, nullptr, nullptr, Count(static_cast<std::int64_t>(count)), static_cast<Type>(type), Op::sum});
    if (name != nullptr && name_size > 0) copy_text(name, name_size, choice.schedule->name);
    if (parts != nullptr) *parts = choice.parts;
    if (streams == nullptr) return;
    *streams = 0;
    const int node = groups.node_of(use->rank());
    for (const Rank rank : groups.members(node))
      for (const Channel& c : choice.schedule->program(groups, {*kind, use->size()}, choice.parts, rank).gives)
        if (groups.node_of(c.peer) != node) *streams += c.width;
  });
}
