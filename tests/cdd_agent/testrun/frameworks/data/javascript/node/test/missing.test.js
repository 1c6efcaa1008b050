import { it, describe } from 'node:test';
import { nope } from '../src/nowhere.js';
it("x", () => {});
