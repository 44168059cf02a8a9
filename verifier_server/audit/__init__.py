"""What generated code tried to do: append-only records, written before the reply is sent."""
