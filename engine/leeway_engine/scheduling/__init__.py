"""Which tokens run in the next iteration: a pure state machine over counts, without torch, clock or IO."""
