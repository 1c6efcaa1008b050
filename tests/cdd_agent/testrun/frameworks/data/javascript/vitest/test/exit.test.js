import { test, expect, describe, afterAll } from 'vitest';
test("one", () => {}); test("two", () => { process.exit(0); }); test("three", () => {});
