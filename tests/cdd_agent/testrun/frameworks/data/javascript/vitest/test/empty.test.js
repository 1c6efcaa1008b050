import { describe, it, test, expect, beforeEach } from 'vitest';
// nothing
