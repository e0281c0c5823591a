// The collective calls: arguments are checked here, so that nothing has started when an error is returned.
#include "src/api/guard.hpp"
#include "src/api/handle.hpp"

using namespace hoccl;

namespace {

struct Call {
  const char* name;
  Kind kind;
  const void* in;
  void* out;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  ncclComm_t comm;
  cudaStream_t stream;
};

// With nothing to move, pointers do not matter.
void check_buffers(const Call& call, int element) {
  if (call.count == 0) return;
  require(call.in != nullptr, Code::invalid_argument, "{}: sendbuff is NULL", call.name);
  require(call.out != nullptr, Code::invalid_argument, "{}: recvbuff is NULL", call.name);
  const auto bits = reinterpret_cast<std::uintptr_t>(call.in) | reinterpret_cast<std::uintptr_t>(call.out);
  require(bits % static_cast<std::uintptr_t>(element) == 0, Code::invalid_argument,
          "{}: the buffers are not aligned to elements of {} bytes", call.name, element);
}

Request checked(const Call& call, int ranks) {
  require(call.type >= 0 && call.type < ncclNumTypes, Code::invalid_argument, "{}: {} is no data type (0 to {})",
          call.name, static_cast<int>(call.type), ncclNumTypes - 1);
  require(call.op >= 0 && call.op < ncclNumOps, Code::invalid_argument, "{}: {} is no reduction (0 to {})", call.name,
          static_cast<int>(call.op), ncclNumOps - 1);
  const auto type = static_cast<Type>(call.type);
  check_count(call.name, call.count, type, ranks);
  check_buffers(call, row(type).bytes);
  require(call.stream == nullptr, Code::invalid_argument,
          "{}: stream {} is unknown: host memory takes the NULL stream, which completes on return", call.name,
          fmt::ptr(call.stream));
  return {call.kind, call.in, call.out, Count(static_cast<std::int64_t>(call.count)), type, static_cast<Op>(call.op)};
}

void add_to_group(const Call& call) {
  auto stay = std::make_unique<Use>(call.comm);
  Communicator& comm = **stay;
  Group::mine().add(comm, checked(call, comm.size()), std::move(stay));
}

void run_at_once(const Call& call) {
  const Use comm(call.comm);
  Work work{&*comm, {checked(call, comm->size())}, std::nullopt};
  run({&work, 1});
  if (work.error) throw Error(*work.error);
}

ncclResult_t collective(const Call& call) {
  return guarded([&] { Group::mine().open() ? add_to_group(call) : run_at_once(call); }, true);
}

}  // namespace

HOCCL_NCCL(ncclResult_t, ncclAllReduce,
           (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
            ncclComm_t comm, cudaStream_t stream)) {
  return collective({"ncclAllReduce", Kind::all_reduce, sendbuff, recvbuff, count, datatype, op, comm, stream});
}

HOCCL_NCCL(ncclResult_t, ncclReduceScatter,
           (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,
            ncclComm_t comm, cudaStream_t stream)) {
  return collective(
      {"ncclReduceScatter", Kind::reduce_scatter, sendbuff, recvbuff, recvcount, datatype, op, comm, stream});
}

HOCCL_NCCL(ncclResult_t, ncclAllGather,
           (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,
            cudaStream_t stream)) {
  return collective(
      {"ncclAllGather", Kind::all_gather, sendbuff, recvbuff, sendcount, datatype, ncclSum, comm, stream});
}
