"""What tests share: peers, leak checks, the specification marker."""
