import { describe, it, test, expect, beforeEach } from 'vitest';
import pad from 'left-pad-none';
test("x", () => {});
