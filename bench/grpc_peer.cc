// A server of grpc++ that does nothing but answer: what bench/grpc sets beside unseen. A question gets a bitmap of zeros,
// a play its count and tag.
// Usage: bench/grpc_peer HOST:PORT
#include <grpcpp/grpcpp.h>

#include <cstdio>

#include "unseen/v1/unseen.grpc.pb.h"

namespace {

class Service final : public unseen::v1::Unseen::Service {
    grpc::Status Filter(grpc::ServerContext *, const unseen::v1::FilterRequest *request,
                        unseen::v1::FilterReply *reply) override
    {
        reply->mutable_bitmap()->assign((request->items_size() + 7) / 8, '\0');
        return grpc::Status::OK;
    }

    grpc::Status PlayedStream(
        grpc::ServerContext *,
        grpc::ServerReaderWriter<unseen::v1::RecordReply, unseen::v1::RecordRequest> *stream) override
    {
        unseen::v1::RecordRequest request;
        unseen::v1::RecordReply reply;
        while (stream->Read(&request)) {
            reply.set_count(request.items_size());
            reply.set_tag(request.tag());
            if (!stream->Write(reply)) {
                break;
            }
        }
        return grpc::Status::OK;
    }
};

}  // namespace

int main(int argc, char **argv)
{
    if (argc != 2) {
        std::fprintf(stderr, "usage: grpc_peer HOST:PORT\n");
        return 2;
    }
    Service service;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(argv[1], grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (server == nullptr) {
        return 1;
    }
    server->Wait();
}
