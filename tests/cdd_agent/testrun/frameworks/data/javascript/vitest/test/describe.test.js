import { describe, it, test, expect, beforeEach } from 'vitest';
describe("group", () => { test("ok", () => {}); }); describe("broken group", () => { undeclared(); test("y", () => {}); });
