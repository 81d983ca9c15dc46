import com.google.protobuf.ByteString;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.dubbo.common.constants.CommonConstants;
import org.apache.dubbo.common.stream.StreamObserver;
import org.apache.dubbo.config.ReferenceConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.config.bootstrap.DubboBootstrap;
import org.apache.dubbo.rpc.RpcContext;
import unseen.v1.FilterReply;
import unseen.v1.FilterRequest;
import unseen.v1.HistoryRequest;
import unseen.v1.RecordReply;
import unseen.v1.RecordRequest;
import unseen.v1.Unseen;

/** Dubbo as a consumer, with the stub made from the proto file: Checks HOST:PORT [HOST:PORT of ZooKeeper] */
public class Checks {
    interface Run {
        void run() throws Exception;
    }

    /** An interface that nobody made from the proto file: Dubbo wraps what it passes. */
    public interface Plain {
        String filter(String user);
    }

    static Unseen unseen;

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

    /** Releases differ in the class of what they throw; each names the status, or what came with it. */
    static void refused(String words, Run run) throws Exception {
        try {
            run.run();
        } catch (RuntimeException error) {
            if (!error.toString().matches("(?s).*(" + words + ").*")) {
                throw new AssertionError(error + " has none of " + words);
            }
            return;
        }
        throw new AssertionError("answered, and not refused with " + words);
    }

    static RecordRequest play(String user, long tag, String... items) {
        return RecordRequest.newBuilder().setUser(user).addAllItems(List.of(items)).setTag(tag).build();
    }

    static FilterRequest.Builder ask(String user, String... items) {
        return FilterRequest.newBuilder().setUser(user).addAllItems(List.of(items));
    }

    static ReferenceConfig<Unseen> reference() {
        ReferenceConfig<Unseen> reference = new ReferenceConfig<>();
        reference.setInterface(Unseen.class);
        reference.setProxy(CommonConstants.NATIVE_STUB);
        reference.setTimeout(60000);
        reference.setRetries(0);
        return reference;
    }

    static void asksAndRecords() {
        RecordReply recorded = unseen.played(play("dubbo:1", 7, "a", "c"));
        same(List.of(recorded.getCount(), recorded.getTag()), List.of(2, 7L));
        same(unseen.filter(ask("dubbo:1", "a", "b", "c", "d").build()).getBitmap().byteAt(0), (byte) 0x50);
        same(unseen.filter(ask("dubbo:1", "a", "b", "c", "d").setReply(FilterRequest.Reply.INDEXES).build())
                .getIndexesList(), List.of(1, 3));
        same(unseen.filter(ask("dubbo:1", "a", "b", "c", "d").setReply(FilterRequest.Reply.ITEMS).setLimit(1).build())
                .getItemsList(), List.of("b"));
    }

    static void binaryIds() {
        ByteString user = ByteString.copyFrom(new byte[] {-1, 0});
        List<ByteString> items = List.of(ByteString.copyFrom(new byte[] {0}), ByteString.copyFrom(new byte[] {-2}));
        unseen.played(RecordRequest.newBuilder().setBinaryUser(user).addBinaryItems(items.get(0)).build());
        same(unseen.filter(FilterRequest.newBuilder().setBinaryUser(user).addAllBinaryItems(items)
                .setReply(FilterRequest.Reply.ITEMS).build()).getBinaryItemsList(), items.subList(1, 2));
    }

    static FilterRequest large(String user) {
        List<String> items = IntStream.range(0, 10000).mapToObj(i -> String.format("video:%019d", i)).toList();
        return FilterRequest.newBuilder().setUser(user).addAllItems(items).build();
    }

    static void manyCandidates() {
        same(unseen.filter(large("dubbo:many")).getBitmap().size(), 1250);
    }

    /** Dubbo 3.2 breaks a connection when that has no window left, and a call on it has. */
    static void largeCallsAtOnce() throws Exception {
        List<CompletableFuture<FilterReply>> calls = new ArrayList<>();
        for (int i = 0; i < 40; i++) {
            calls.add(unseen.filterAsync(large("dubbo:l" + i)));
        }
        for (CompletableFuture<FilterReply> call : calls) {
            same(call.get(120, TimeUnit.SECONDS).getBitmap().size(), 1250);
        }
    }

    static void attachments() {
        RpcContext.getClientAttachment().setAttachment("trace-id", "4711");
        same(unseen.filter(ask("dubbo:t", "a").build()).getBitmap().size(), 1);
    }

    static void versionAndGroup(String address) {
        ReferenceConfig<Unseen> reference = reference();
        reference.setUrl("tri://" + address);
        reference.setVersion("1.0.0");
        reference.setGroup("recommenders");
        same(reference.get().filter(ask("dubbo:v", "a").build()).getBitmap().size(), 1);
        reference.destroy();
    }

    static void stream() throws Exception {
        BlockingQueue<Object> replies = new LinkedBlockingQueue<>();
        StreamObserver<RecordRequest> plays = unseen.playedStream(new StreamObserver<>() {
            public void onNext(RecordReply reply) {
                replies.add(reply);
            }

            public void onError(Throwable error) {
                replies.add(error);
            }

            public void onCompleted() {
                replies.add("completed");
            }
        });
        for (int i = 1; i <= 500; i++) {
            plays.onNext(play("dubbo:s" + i % 10, i, Integer.toString(i)));
        }
        plays.onCompleted();
        for (int i = 1; i <= 500; i++) {
            same(replies.poll(120, TimeUnit.SECONDS), RecordReply.newBuilder().setCount(1).setTag(i).build());
        }
        same(replies.poll(120, TimeUnit.SECONDS), "completed");
    }

    static void errors() throws Exception {
        refused("INVALID_ARGUMENT|user", () -> unseen.filter(ask("", "a").build()));
        refused("OUT_OF_RANGE|time", () -> unseen.played(
                play("dubbo:e", 0, "a").toBuilder().setAt(4102444800001L).build()));
        refused("NOT_FOUND|nobody|user", () -> unseen.history(
                HistoryRequest.newBuilder().setUser("dubbo:nobody").build()));
    }

    static void plainObjects(String address) throws Exception {
        ReferenceConfig<Plain> reference = new ReferenceConfig<>();
        reference.setInterface(Plain.class);
        reference.setUrl("tri://" + address + "/unseen.v1.Unseen");
        reference.setTimeout(60000);
        reference.setRetries(0);
        reference.setCheck(false);
        refused("stub", () -> reference.get().filter("dubbo:p"));
        reference.destroy();
    }

    /** It queues none beyond what the server allows on a connection. */
    static void manyCallsAtOnce() throws Exception {
        List<CompletableFuture<FilterReply>> calls = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            calls.add(unseen.filterAsync(ask("dubbo:c" + i, "a", "b").build()));
        }
        for (CompletableFuture<FilterReply> call : calls) {
            same(call.get(120, TimeUnit.SECONDS).getBitmap().byteAt(0), (byte) 0xc0);
        }
    }

    /** The address comes from ZooKeeper alone. */
    static void throughRegistry(String zookeeper) {
        RegistryConfig registry = new RegistryConfig("zookeeper://" + zookeeper);
        registry.setTimeout(60000);
        ReferenceConfig<Unseen> reference = reference();
        reference.setRegistry(registry);
        reference.setProtocol("tri");
        reference.setGroup(System.getenv("GROUP"));
        same(reference.get().filter(ask("dubbo:z", "a").build()).getBitmap().size(), 1);
        reference.destroy();
    }

    public static void main(String[] args) {
        ReferenceConfig<Unseen> direct = reference();
        direct.setUrl("tri://" + args[0]);
        DubboBootstrap.getInstance().application("checks").start();
        unseen = direct.get();
        check("asks and records", Checks::asksAndRecords);
        check("binary ids", Checks::binaryIds);
        check("10,000 candidates", Checks::manyCandidates);
        check("attachments", Checks::attachments);
        check("a version and a group", () -> versionAndGroup(args[0]));
        check("500 plays in a stream", Checks::stream);
        check("errors", Checks::errors);
        check("plain objects", () -> plainObjects(args[0]));
        check("200 calls at once", Checks::manyCallsAtOnce);
        check("40 large calls at once", Checks::largeCallsAtOnce);
        check("through ZooKeeper", () -> throughRegistry(args[1]));
        System.exit(0); // Dubbo's threads go on
    }
}
