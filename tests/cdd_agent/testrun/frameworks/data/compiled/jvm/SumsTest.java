package demo;

import static org.junit.Assert.assertEquals;

import org.junit.Ignore;
import org.junit.Test;

public class SumsTest {
    @Test
    public void adds() {
        assertEquals(2, Sums.add(1, 1));
    }

    @Test
    public void addsWrongly() {
        System.out.println("printed by the test");
        assertEquals("one and one", 3, Sums.add(1, 1));
    }

    @Test
    public void explodes() {
        Sums.explode();
    }

    @Test
    public void isToDo() {
        Sums.later();
    }

    @Test(expected = IllegalArgumentException.class)
    public void throwsNothing() {
        Sums.add(1, 1);
    }

    @Test(expected = IllegalArgumentException.class)
    public void throwsAnother() {
        Sums.explode();
    }

    @Test(timeout = 50)
    public void takesLong() throws Exception {
        Thread.sleep(5000);
    }

    @Test
    @Ignore("slow")
    public void waits() {
    }

    public static class Inner {
        @Test
        public void nested() {
        }
    }
}
