"""How each kind of event changes the facts of the World."""
