import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.ByteArrayOutput;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.output.IntegerListOutput;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.stream.IntStream;

public class LettuceExample {
    enum Unseen implements ProtocolKeyword {
        PLAYED, FILTER, DELIVERED;

        @Override
        public byte[] getBytes() {
            return name().getBytes(StandardCharsets.UTF_8);
        }
    }

    static <T> T run(RedisCommands<String, String> on, Unseen command, CommandOutput<String, String, T> output,
            String... args) {
        CommandArgs<String, String> all = new CommandArgs<>(StringCodec.UTF8);
        for (String arg : args) {
            all.add(arg);
        }
        return on.dispatch(command, output, all);
    }

    public static void main(String[] args) {
        int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "7979"));
        RedisClient client = RedisClient.create(RedisURI.create("127.0.0.1", port));
        RedisCommands<String, String> writing = client.connect().sync();
        RedisCommands<String, String> asking = client.connect().sync();
        writing.getStatefulConnection().setTimeout(Duration.ofSeconds(5));
        asking.getStatefulConnection().setTimeout(Duration.ofSeconds(2));

        run(writing, Unseen.PLAYED, new IntegerOutput<>(StringCodec.UTF8), "lettuce:u1", "a");

        List<String> candidates = List.of("a", "b", "c"); // recalled
        List<Long> unseen = run(asking, Unseen.FILTER, new IntegerListOutput<>(StringCodec.UTF8),
                "lettuce:u1", "REPLY", "INDEXES", "ITEMS", "a", "b", "c");

        byte[] bitmap = run(asking, Unseen.FILTER, new ByteArrayOutput<>(StringCodec.UTF8),
                "lettuce:u1", "REPLY", "BITMAP", "ITEMS", "a", "b", "c");
        List<Long> same = IntStream.range(0, candidates.size())
                .filter(i -> (bitmap[i / 8] >> (7 - i % 8) & 1) == 1).mapToObj(i -> (long) i).toList();
        if (!same.equals(unseen)) {
            throw new AssertionError(same + " is not " + unseen);
        }

        String best = candidates.get(unseen.get(0).intValue()); // your ranking
        run(writing, Unseen.DELIVERED, new IntegerOutput<>(StringCodec.UTF8), "lettuce:u1", best);
        System.out.println(best);
        client.shutdown();
    }
}
