package demo;

public class Sums {
    public static int add(int a, int b) {
        return a + b;
    }

    public static int explode() {
        throw new IllegalStateException("boom");
    }

    public static int later() {
        throw new UnsupportedOperationException("not implemented");
    }
}
