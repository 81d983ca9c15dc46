import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.ByteArrayOutput;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.output.IntegerListOutput;
import io.lettuce.core.output.IntegerOutput;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceClientConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnection;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

public class SpringExample {
    static LettuceConnectionFactory factory(Duration timeout) {
        int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "7979"));
        LettuceConnectionFactory factory = new LettuceConnectionFactory(
                new RedisStandaloneConfiguration("127.0.0.1", port),
                LettuceClientConfiguration.builder().commandTimeout(timeout).build());
        factory.afterPropertiesSet();
        factory.start();
        return factory;
    }

    /** Not k.execute("FILTER", ...) of a template: without an output, of an array its last item is left. */
    @SuppressWarnings("unchecked")
    static <T> T run(LettuceConnectionFactory on, CommandOutput<byte[], byte[], T> output, String command,
            String... args) {
        byte[][] bytes = Stream.of(args).map(arg -> arg.getBytes(StandardCharsets.UTF_8)).toArray(byte[][]::new);
        LettuceConnection connection = (LettuceConnection) on.getConnection();
        try {
            return (T) connection.execute(command, output, bytes);
        } finally {
            connection.close();
        }
    }

    public static void main(String[] args) {
        LettuceConnectionFactory writing = factory(Duration.ofSeconds(5));
        LettuceConnectionFactory asking = factory(Duration.ofSeconds(2));

        run(writing, new IntegerOutput<>(ByteArrayCodec.INSTANCE), "PLAYED", "spring:u1", "a");

        List<String> candidates = List.of("a", "b", "c"); // recalled
        List<Long> unseen = run(asking, new IntegerListOutput<>(ByteArrayCodec.INSTANCE),
                "FILTER", "spring:u1", "REPLY", "INDEXES", "ITEMS", "a", "b", "c");

        byte[] bitmap = run(asking, new ByteArrayOutput<>(ByteArrayCodec.INSTANCE),
                "FILTER", "spring:u1", "REPLY", "BITMAP", "ITEMS", "a", "b", "c");
        List<Long> same = IntStream.range(0, candidates.size())
                .filter(i -> (bitmap[i / 8] >> (7 - i % 8) & 1) == 1).mapToObj(i -> (long) i).toList();
        if (!same.equals(unseen)) {
            throw new AssertionError(same + " is not " + unseen);
        }

        String best = candidates.get(unseen.get(0).intValue()); // your ranking
        run(writing, new IntegerOutput<>(ByteArrayCodec.INSTANCE), "DELIVERED", "spring:u1", best);
        System.out.println(best);
        writing.destroy();
        asking.destroy();
    }
}
