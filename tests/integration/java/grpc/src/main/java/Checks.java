import com.google.protobuf.ByteString;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.health.v1.HealthCheckRequest;
import io.grpc.health.v1.HealthCheckResponse.ServingStatus;
import io.grpc.health.v1.HealthGrpc;
import io.grpc.stub.StreamObserver;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import unseen.v1.FilterRequest;
import unseen.v1.ForgetRequest;
import unseen.v1.HistoryRequest;
import unseen.v1.RecordReply;
import unseen.v1.RecordRequest;
import unseen.v1.UnseenGrpc;
import unseen.v1.WhyRequest;

/** grpc-java: Checks HOST:PORT */
public class Checks {
    interface Run {
        void run() throws Exception;
    }

    static ManagedChannel channel;
    static UnseenGrpc.UnseenBlockingStub unseen;

    static void check(String name, Run run) {
        try {
            run.run();
            System.out.println("ok " + name);
        } catch (Throwable error) {
            System.out.println("not ok " + name + ": " + error.toString().replace('\n', ' '));
        }
    }

    static void same(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError(found + ", and not " + wanted);
        }
    }

    static void refused(Status.Code code, Run run) throws Exception {
        try {
            run.run();
        } catch (StatusRuntimeException error) {
            same(error.getStatus().getCode(), code);
            if (error.getStatus().getDescription() == null || error.getStatus().getDescription().isEmpty()) {
                throw new AssertionError(code + " without a text");
            }
            return;
        }
        throw new AssertionError("answered, and not refused with " + code);
    }

    static RecordRequest play(String user, long tag, String... items) {
        return RecordRequest.newBuilder().setUser(user).addAllItems(List.of(items)).setTag(tag).build();
    }

    static FilterRequest.Builder ask(String user, String... items) {
        return FilterRequest.newBuilder().setUser(user).addAllItems(List.of(items));
    }

    static List<String> candidates() {
        return IntStream.range(0, 10000).mapToObj(i -> String.format("video:%019d", i)).toList();
    }

    /** Replies of a stream, and how it ended: null, or an error. */
    static class Replies implements StreamObserver<RecordReply> {
        final BlockingQueue<Object> queue = new LinkedBlockingQueue<>();

        public void onNext(RecordReply reply) {
            queue.add(reply);
        }

        public void onError(Throwable error) {
            queue.add(Status.fromThrowable(error).getCode());
        }

        public void onCompleted() {
            queue.add(Status.Code.OK);
        }

        Object next() throws InterruptedException {
            return queue.poll(120, TimeUnit.SECONDS);
        }
    }

    static void asksAndRecords() {
        RecordReply recorded = unseen.played(play("java:1", 7, "a", "c"));
        same(List.of(recorded.getCount(), recorded.getTag()), List.of(2, 7L));
        same(unseen.filter(ask("java:1", "a", "b", "c", "d").build()).getBitmap().byteAt(0), (byte) 0x50);
        same(unseen.filter(ask("java:1", "a", "b", "c", "d").setReply(FilterRequest.Reply.INDEXES).build())
                .getIndexesList(), List.of(1, 3));
        same(unseen.filter(ask("java:1", "a", "b", "c", "d").setReply(FilterRequest.Reply.ITEMS).setLimit(1).build())
                .getItemsList(), List.of("b"));
    }

    static void binaryIds() {
        ByteString user = ByteString.copyFrom(new byte[] {-1, 0});
        List<ByteString> items = List.of(ByteString.copyFrom(new byte[] {0}), ByteString.copyFrom(new byte[] {-2}));
        unseen.played(RecordRequest.newBuilder().setBinaryUser(user).addBinaryItems(items.get(0)).build());
        same(unseen.filter(FilterRequest.newBuilder().setBinaryUser(user).addAllBinaryItems(items)
                .setReply(FilterRequest.Reply.ITEMS).build()).getBinaryItemsList(), items.subList(1, 2));
    }

    static void manyCandidates(UnseenGrpc.UnseenBlockingStub stub, String user) {
        same(stub.filter(FilterRequest.newBuilder().setUser(user).addAllItems(candidates()).build()).getBitmap().size(),
                1250);
    }

    static void stream() throws Exception {
        Replies replies = new Replies();
        StreamObserver<RecordRequest> plays = UnseenGrpc.newStub(channel).playedStream(replies);
        for (int i = 1; i <= 2000; i++) {
            plays.onNext(play("java:s" + i % 10, i, Integer.toString(i)));
        }
        plays.onCompleted();
        for (int i = 1; i <= 2000; i++) {
            same(replies.next(), RecordReply.newBuilder().setCount(1).setTag(i).build());
        }
        same(replies.next(), Status.Code.OK);
    }

    static void deadline() throws Exception {
        Replies replies = new Replies();
        UnseenGrpc.newStub(channel).withDeadlineAfter(500, TimeUnit.MILLISECONDS).playedStream(replies)
                .onNext(play("java:d", 1, "a")); // and no end
        same(((RecordReply) replies.next()).getTag(), 1L);
        same(replies.next(), Status.Code.DEADLINE_EXCEEDED);
        same(unseen.withDeadlineAfter(1, TimeUnit.MINUTES).filter(ask("java:d", "b").build()).getBitmap().size(), 1);
    }

    static void errorsByStatus() throws Exception {
        refused(Status.Code.INVALID_ARGUMENT, () -> unseen.filter(ask("", "a").build()));
        refused(Status.Code.INVALID_ARGUMENT, () -> unseen.filter(ask("java:e").build()));
        refused(Status.Code.OUT_OF_RANGE, () -> unseen.played(
                play("java:e", 0, "a").toBuilder().setAt(4102444800001L).build()));
        refused(Status.Code.NOT_FOUND, () -> unseen.history(
                HistoryRequest.newBuilder().setUser("java:nobody").build()));
    }

    static void otherOperations() {
        unseen.delivered(play("java:o", 0, "sent"));
        same(unseen.why(WhyRequest.newBuilder().setUser("java:o").setItem("sent").build()).getPlaces(0).getPlace(),
                "delivered");
        same(unseen.history(HistoryRequest.newBuilder().setUser("java:o").build()).getDelivered(), 1L);
        same(unseen.forget(ForgetRequest.newBuilder().setUser("java:o").setAll(true).build()).getCount(), 1);
    }

    static void health() throws Exception {
        HealthGrpc.HealthBlockingStub health = HealthGrpc.newBlockingStub(channel);
        same(health.check(HealthCheckRequest.newBuilder().setService("unseen.v1.Unseen").build()).getStatus(),
                ServingStatus.SERVING);
        refused(Status.Code.NOT_FOUND, () -> health.check(HealthCheckRequest.newBuilder().setService("other").build()));
        same(health.watch(HealthCheckRequest.getDefaultInstance()).next().getStatus(), ServingStatus.SERVING);
    }

    static void manyCallsAtOnce() throws Exception {
        List<com.google.common.util.concurrent.ListenableFuture<unseen.v1.FilterReply>> calls = new ArrayList<>();
        for (int i = 0; i < 500; i++) {
            calls.add(UnseenGrpc.newFutureStub(channel).filter(ask("java:c" + i, "a", "b").build()));
        }
        for (var call : calls) {
            same(call.get(120, TimeUnit.SECONDS).getBitmap().byteAt(0), (byte) 0xc0);
        }
    }

    public static void main(String[] args) {
        channel = Grpc.newChannelBuilder(args[0], InsecureChannelCredentials.create()).build();
        unseen = UnseenGrpc.newBlockingStub(channel);
        check("asks and records", Checks::asksAndRecords);
        check("binary ids", Checks::binaryIds);
        check("10,000 candidates", () -> manyCandidates(unseen, "java:many"));
        check("gzip", () -> manyCandidates(unseen.withCompression("gzip"), "java:gzip"));
        check("2,000 plays in a stream", Checks::stream);
        check("a deadline", Checks::deadline);
        check("errors by status", Checks::errorsByStatus);
        check("the other operations", Checks::otherOperations);
        check("health", Checks::health);
        check("500 calls at once", Checks::manyCallsAtOnce);
        channel.shutdownNow();
    }
}
