import java.net.URI;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Commits records with Hadoop's own client: write, then hflush or hsync. Arguments: the file system, a file, bytes of
 * a record, records, "hflush" or "hsync". Prints the median and the 99th percentile of a commit in microseconds, and
 * MiB per second.
 */
public class Commit {
  public static void main(String[] args) throws Exception {
    int size = Integer.parseInt(args[2]);
    int count = Integer.parseInt(args[3]);
    boolean sync = args[4].equals("hsync");
    byte[] record = new byte[size];
    for (int i = 0; i < size; i++) {
      record[i] = (byte) (i * 7);
    }
    int warm = count / 5;
    long[] took = new long[count];
    long began = 0;
    try (FileSystem fs = FileSystem.get(new URI(args[0]), new Configuration());
        FSDataOutputStream out = fs.create(new Path(args[1]))) {
      for (int i = -warm; i < count; i++) {
        long start = System.nanoTime();
        if (i == 0) {
          began = start;
        }
        out.write(record);
        if (sync) {
          out.hsync();
        } else {
          out.hflush();
        }
        if (i >= 0) {
          took[i] = System.nanoTime() - start;
        }
      }
      double seconds = (System.nanoTime() - began) / 1e9;
      Arrays.sort(took);
      System.out.printf("%.1f %.1f %.2f%n", took[count / 2] / 1e3, took[count * 99 / 100] / 1e3, count * (double) size / (1 << 20) / seconds);
    }
  }
}
