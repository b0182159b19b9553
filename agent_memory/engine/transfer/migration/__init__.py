"""Moving what one store holds to another."""
