import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import net.jpountz.xxhash.XXHash64;
import net.jpountz.xxhash.XXHashFactory;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;

/**
 * Batches made and decoded by the Java client, of every codec and format: `RandomBatches SEED COUNT`.
 *
 * <p>Writes frames to standard output: how many bytes of batches follow, and these; how many batches and records they
 * hold; and two sums over the records' hashes (compare/record_digest.py), one of them with their offsets.
 */
public final class RandomBatches {
    private static final XXHash64 HASH = XXHashFactory.fastestInstance().hash64();
    private static final long SEED = 42;

    public static void main(String[] arguments) throws IOException {
        Random dice = new Random(Long.parseLong(arguments[0]));
        long left = Long.parseLong(arguments[1]);
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 20));
        long offset = dice.nextInt(1000);
        while (left > 0) {
            ByteBuffer frame = ByteBuffer.allocate(8 << 20);
            int batches = (int) Math.min(left, 1 + dice.nextInt(40));
            for (int n = 0; n < batches; n++) {
                ByteBuffer one = batch(dice, offset);
                offset = MemoryRecords.readableRecords(one.duplicate()).lastBatch().get().nextOffset() + dice.nextInt(3);
                frame.put(one);
            }
            frame.flip();
            byte[] bytes = new byte[frame.remaining()];
            frame.duplicate().get(bytes);
            out.writeInt(bytes.length);
            out.write(bytes);
            digest(MemoryRecords.readableRecords(frame), batches, out);
            left -= batches;
        }
        out.writeInt(-1);
        out.flush();
    }

    private static ByteBuffer batch(Random dice, long offset) {
        byte magic = (byte) (dice.nextInt(4) > 1 ? 2 : dice.nextInt(2));
        CompressionType type = CompressionType.forId(dice.nextInt(magic == 2 ? 5 : 4));
        TimestampType stamp =
                magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE
                        : dice.nextInt(4) == 0 ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        boolean transactional = magic == 2 && dice.nextInt(4) == 0;
        long producer = transactional ? dice.nextInt(1000) : RecordBatch.NO_PRODUCER_ID;
        long now = 1_600_000_000_000L + dice.nextInt(1_000_000_000);
        MemoryRecordsBuilder builder = MemoryRecords.builder(
                ByteBuffer.allocate(1 << 14), magic, Compression.of(type).build(), stamp, offset, now, producer,
                (short) (transactional ? 3 : -1), transactional ? dice.nextInt(1000) : -1, transactional, 5);
        // A message of an old format that is not compressed stands alone.
        int count = magic < 2 && type == CompressionType.NONE ? 1 : 1 + dice.nextInt(dice.nextInt(10) == 0 ? 200 : 5);
        for (int n = 0; n < count; n++) {
            offset += n == 0 || magic < 2 ? Math.min(n, 1) : 1 + (dice.nextInt(5) == 0 ? dice.nextInt(300) : 0);
            Header[] headers = new Header[magic == 2 && dice.nextInt(3) == 0 ? dice.nextInt(5) : 0];
            for (int at = 0; at < headers.length; at++) {
                headers[at] = new RecordHeader("größe-" + dice.nextInt(100), bytes(dice, 20));
            }
            long time = magic == 0 ? RecordBatch.NO_TIMESTAMP : now + dice.nextInt(100_000) - 50_000;
            byte[] key = bytes(dice, 20);
            builder.appendWithOffset(offset, time, key, bytes(dice, dice.nextInt(20) == 0 ? 5000 : 80), headers);
        }
        return builder.build().buffer();
    }

    private static byte[] bytes(Random dice, int most) {
        if (dice.nextInt(8) == 0) {
            return null;
        }
        byte[] found = new byte[dice.nextInt(most)];
        dice.nextBytes(found);
        if (dice.nextBoolean()) {
            java.util.Arrays.fill(found, (byte) 'x');
        }
        return found;
    }

    private static void digest(MemoryRecords records, int batches, DataOutputStream out) throws IOException {
        int count = 0;
        long total = 0;
        long ordered = 0;
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                long hash = hash(record);
                count++;
                total += hash;
                ordered += number(record.offset(), number(hash, SEED));
            }
        }
        out.writeInt(batches);
        out.writeInt(count);
        out.writeLong(total);
        out.writeLong(ordered);
    }

    private static long hash(Record record) {
        long content = SEED;
        long flags = 0;
        if (record.hasKey()) {
            content = of(record.key(), content);
        } else {
            flags |= 1;
        }
        if (record.hasValue()) {
            content = of(record.value(), content);
        } else {
            flags |= 2;
        }
        Header[] headers = record.headers();
        for (Header header : headers) {
            content = of(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8)), content);
            content = header.value() == null ? content : of(ByteBuffer.wrap(header.value()), content);
        }
        for (int at = 0; at < headers.length; at++) {
            if (headers[at].value() == null) {
                ByteBuffer place = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(at);
                content = of((ByteBuffer) place.flip(), content);
                flags += 1L << 34;
            }
        }
        flags += (long) headers.length << 2;
        return number(flags, number(record.timestamp(), content));
    }

    private static long number(long value, long seed) {
        return of((ByteBuffer) ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(value).flip(), seed);
    }

    private static long of(ByteBuffer bytes, long seed) {
        return HASH.hash(bytes, bytes.position(), bytes.remaining(), seed);
    }
}
