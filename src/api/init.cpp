// Communicators come and go: unique ids, creation by rank and for one process, destroy and abort.
#include <cstring>

#include "src/api/guard.hpp"
#include "src/api/handle.hpp"
#include "src/base/log.hpp"
#include "src/base/threads.hpp"

using namespace hoccl;

namespace {

Config configured() {
  Config config = read_config();
  log::configure(config);
  static const bool told = [] {
    log::version("HOCCL version " HOCCL_VERSION ", NCCL {}.{}.{} interface", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
    for (const std::string& line : unknown_knobs()) log::warn("config", "{}", line);
    return true;
  }();
  (void)told;
  return config;
}

void make_live(ncclComm* handle, std::unique_ptr<Bootstrap> bootstrap, const Config& config, int device) {
  handle->communicator = std::make_unique<Communicator>(std::move(bootstrap), config, device);
  handle->magic.store(kLive);
}

}  // namespace

HOCCL_NCCL(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id)) {
  return guarded([&] {
    require_pointer(id, "ncclGetUniqueId", "uniqueId");
    // Each process counts its ids, so that the k-th id of every process is the same one when HOCCL_ID fixes the
    // address.
    static std::atomic<int> sequence{0};
    const UniqueId made = make_unique_id(configured().id, sequence.fetch_add(1));
    static_assert(sizeof(*id) == sizeof(made));
    std::memcpy(id, made.data(), sizeof(made));
  });
}

HOCCL_NCCL(ncclResult_t, ncclCommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank)) {
  return guarded(
      [&] {
        require_pointer(comm, "ncclCommInitRank", "comm");
        *comm = nullptr;
        require(nranks > 0, Code::invalid_argument, "ncclCommInitRank: nranks is {}, must be at least 1", nranks);
        require(rank >= 0 && rank < nranks, Code::invalid_argument, "ncclCommInitRank: rank {} is outside 0 to {}",
                rank, nranks - 1);
        const Config config = configured();
        UniqueId id;
        std::memcpy(id.data(), &commId, sizeof(id));
        ncclComm* handle = new_handle();
        const auto create = [=] {
          log::set_rank(rank);
          try {
            make_live(handle, join_tcp(id, static_cast<Rank>(rank), nranks, config.start_timeout), config, 0);
          } catch (...) {
            *comm = nullptr;
            retire(handle);
            throw;
          }
        };
        *comm = handle;
        const auto drop = [=] {
          *comm = nullptr;
          retire(handle);
        };
        if (Group::mine().open())
          Group::mine().add_creation(create, drop);
        else
          create();
      },
      true);
}

HOCCL_NCCL(ncclResult_t, ncclCommInitAll, (ncclComm_t * comm, int ndev, const int* devlist)) {
  return guarded([&] {
    require_pointer(comm, "ncclCommInitAll", "comm");
    require(ndev > 0, Code::invalid_argument, "ncclCommInitAll: ndev is {}, must be at least 1", ndev);
    require(!Group::mine().open(), Code::invalid_usage, "ncclCommInitAll inside a group: call it outside");
    for (int i = 0; devlist != nullptr && i < ndev; ++i)
      for (int j = 0; j < i; ++j)
        require(devlist[i] != devlist[j], Code::invalid_usage, "ncclCommInitAll: devlist names device {} twice",
                devlist[i]);
    const Config config = configured();
    auto bootstraps = join_threads(ndev, config.start_timeout);
    for (int i = 0; i < ndev; ++i) comm[i] = new_handle();
    try {
      run_together(static_cast<std::size_t>(ndev), [&](std::size_t i) {
        log::set_rank(static_cast<int>(i));
        make_live(comm[i], std::move(bootstraps[i]), config, devlist != nullptr ? devlist[i] : static_cast<int>(i));
      });
    } catch (...) {
      for (int i = 0; i < ndev; ++i) retire(std::exchange(comm[i], nullptr));
      throw;
    }
  });
}

namespace {

// Ends a communicator from a call that stays inside it itself.
void end(ncclComm_t comm, const char* call, bool abort) {
  Use alive(comm);
  require(!Group::mine().holds(*alive), Code::invalid_usage,
          "{}: the open group of this thread holds calls of this communicator: end the group first", call);
  require(!comm->ending.exchange(true), Code::invalid_argument, "{}: another call ends this communicator", call);
  if (abort) alive->abort(fmt::format("rank {} called ncclCommAbort", index(alive->rank())));
  alive.release();
  retire(comm);
}

}  // namespace

HOCCL_NCCL(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) {
  if (comm == nullptr) return ncclSuccess;
  return guarded([&] { end(comm, "ncclCommDestroy", false); });
}

HOCCL_NCCL(ncclResult_t, ncclCommAbort, (ncclComm_t comm)) {
  if (comm == nullptr) return ncclSuccess;
  return guarded([&] { end(comm, "ncclCommAbort", true); });
}
