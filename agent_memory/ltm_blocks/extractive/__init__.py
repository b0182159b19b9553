"""How `ExtractiveMemory` works: what it asks a model, and what becomes of the answers."""
