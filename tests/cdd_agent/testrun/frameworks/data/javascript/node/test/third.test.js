import { it, describe } from 'node:test';
import pad from 'left-pad-none';
it("x", () => {});
