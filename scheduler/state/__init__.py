"""All facts that the scheduler has, and the records that they are kept in."""
