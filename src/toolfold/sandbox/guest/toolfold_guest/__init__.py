"""What runs inside the sandbox, standard library only. The host trusts none of it."""
