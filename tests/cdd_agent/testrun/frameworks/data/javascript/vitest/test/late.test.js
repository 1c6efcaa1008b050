import { test, afterAll } from 'vitest';
afterAll(() => { throw new Error("late file"); }); test("in c", () => {});
