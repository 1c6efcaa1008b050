import { describe, it, test, expect, beforeEach } from 'vitest';
undeclared();
test("x", () => {});
