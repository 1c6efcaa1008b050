import { describe, it, test, expect, beforeEach } from 'vitest';
import { nope } from '../src/nowhere.js';
test("x", () => {});
