package demo;

import org.junit.BeforeClass;
import org.junit.Test;

public class BrokenSetupTest {
    @BeforeClass
    public static void prepare() {
        throw new RuntimeException("no database");
    }

    @Test
    public void neverRuns() {
    }
}
