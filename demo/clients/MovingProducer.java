import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Instant;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The same as moving.py, for Java's client: writes steadily until SIGTERM, and notes as docs/checker.md says. Arguments:
 * a file with the client's properties, the file of notes, client, cluster, kind, clock, nanoseconds of the start, records a
 * second, prefix of values, topics, and the topic that it tries itself out on.
 */
public class MovingProducer {
    private static final int KEYS = 50, PER_TRANSACTION = 3, ABORTS_EVERY = 10;
    private static volatile long asked;

    private final FileOutputStream file;
    private final Path status;
    private final String[] topics;
    private final String prefix, health;
    private final KafkaProducer<String, String> producer;
    private long sent, acknowledged, failed;

    private MovingProducer(String[] args) throws Exception {
        Path notes = Path.of(args[1]);
        Files.createDirectories(notes.getParent());
        Files.createFile(notes);
        file = new FileOutputStream(notes.toFile(), true);
        status = notes.resolveSibling(notes.getFileName().toString().replace(".jsonl", ".json"));
        prefix = args[8];
        topics = args[9].split(",");
        health = args[10];
        note("open", System.nanoTime(), ",\"version\":1,\"client\":\"" + args[2] + "\",\"cluster\":\"" + args[3]
            + "\",\"kind\":\"" + args[4] + "\",\"clock\":\"" + args[5] + "\",\"started\":" + args[6]);
        Properties properties = new Properties();
        try (FileInputStream from = new FileInputStream(args[0])) {
            properties.load(from);
        }
        producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    public static void main(String[] args) throws Exception {
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            asked = System.nanoTime();
            try {
                main.join(60_000);
            } catch (InterruptedException late) {
                // The JVM ends.
            }
        }));
        new MovingProducer(args).run(args[4].equals("transactional"), Double.parseDouble(args[7]));
    }

    private void run(boolean isTransactional, double perSecond) throws Exception {
        tryOut(isTransactional);
        note("ready", System.nanoTime(), "");
        int each = isTransactional ? PER_TRANSACTION : 1;
        // The first is due at once: work has waited for an application that was away.
        long began = System.nanoTime() - (long) (each / perSecond * 1e9), done = 0, told = 0;
        while (asked == 0) {
            while (asked == 0 && (System.nanoTime() - began) / 1e9 * perSecond - done >= each) {
                done += each;
                if (isTransactional) {
                    transaction(done / each, done / each % ABORTS_EVERY == 0);
                } else {
                    send(topics[(int) (done % topics.length)], "");
                }
            }
            Thread.sleep(10);
            if (System.nanoTime() - told > 500_000_000L) {
                told = System.nanoTime();
                tell(false);
            }
        }
        note("stop", asked, "");
        producer.close();
        note("close", System.nanoTime(), "");
        tell(true);
    }

    /** It is at work once it can write, as an application is whose readiness probe does so. */
    private void tryOut(boolean isTransactional) throws Exception {
        if (isTransactional) {
            producer.initTransactions();
            producer.beginTransaction();
        }
        Future<RecordMetadata> written = producer.send(new ProducerRecord<>(health, "", ""));
        producer.flush();
        written.get();
        if (isTransactional) {
            producer.commitTransaction();
        }
        // Last: until the markers of that commit are written, the coordinator takes no further transaction.
        for (String topic : topics) {
            producer.partitionsFor(topic);
        }
    }

    private void transaction(long number, boolean isAborted) throws Exception {
        producer.beginTransaction();
        String txn = ",\"txn\":" + number;
        note("begin", System.nanoTime(), txn);
        for (int record = 0; record < PER_TRANSACTION; record++) {
            send(topics[record % topics.length], txn);
        }
        producer.flush();
        note("end", System.nanoTime(), txn + ",\"how\":\"" + (isAborted ? "abort" : "commit") + "\"");
        if (isAborted) {
            producer.abortTransaction();
        } else {
            producer.commitTransaction();
        }
        note("ended", System.nanoTime(), txn + ",\"outcome\":\"" + (isAborted ? "aborted" : "committed") + "\"");
    }

    private void send(String topic, String txn) throws Exception {
        long seq = ++sent;
        String value = prefix + "-" + seq, key = "key-" + seq % KEYS;
        note("send", System.nanoTime(), ",\"seq\":" + seq + ",\"value\":\"" + value + "\",\"topic\":\"" + topic
            + "\",\"key\":\"" + key + "\"" + txn);
        producer.send(new ProducerRecord<>(topic, key, "{\"id\":\"" + value + "\"}"), (where, error) -> {
            try {
                if (error == null) {
                    note("ack", System.nanoTime(), ",\"seq\":" + seq + ",\"partition\":" + where.partition()
                        + (where.hasOffset() ? ",\"offset\":" + where.offset() : ""));
                    acknowledged++;
                } else {
                    note("failed", System.nanoTime(), ",\"seq\":" + seq + ",\"certain\":false");
                    failed++;
                    System.err.println("not acknowledged: " + error);
                }
            } catch (Exception unwritten) {
                throw new RuntimeException(unwritten);
            }
        });
    }

    private synchronized void note(String event, long mono, String fields) throws Exception {
        Instant now = Instant.now();
        long wall = now.getEpochSecond() * 1_000_000_000L + now.getNano() - (System.nanoTime() - mono);
        String line = "{\"event\":\"" + event + "\",\"wall\":" + wall + ",\"mono\":" + mono + fields + "}\n";
        file.write(line.getBytes(StandardCharsets.UTF_8));
    }

    private void tell(boolean hasEnded) throws Exception {
        Path partial = status.resolveSibling("." + status.getFileName());
        Files.writeString(partial, "{\"sent\":" + sent + ",\"acknowledged\":" + acknowledged + ",\"failed\":" + failed
            + ",\"ended\":" + hasEnded + "}");
        Files.move(partial, status, StandardCopyOption.ATOMIC_MOVE);
    }
}
