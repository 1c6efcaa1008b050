"""The Executor, who carries a plan out step by step."""
