import { describe, it, test, expect, beforeEach } from 'vitest';
import { nope } from '../src/calc.js';
test("uses an export that is not there", () => { expect(nope(1)).toBe(1); });
