import { describe, it, test, expect, beforeEach } from 'vitest';
test("x", () => { const = ;});
