"""The changes of facts by each kind of event."""
