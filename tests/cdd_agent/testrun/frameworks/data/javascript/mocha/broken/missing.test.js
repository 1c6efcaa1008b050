import { nope } from '../src/nowhere.js';
it("x", () => {});
